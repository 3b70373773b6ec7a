#!/usr/bin/env python3
"""A client that knows exactly what was acknowledged, and checks that it is there.

acknowledged.py write URI FILE   writes stamped blocks until the server is gone, then writes FILE;
                                 makes FILE.started once a good many writes have been acknowledged
acknowledged.py check URI FILE   reads every block that FILE tells of

Each block holds its number and a stamp that grows. A block must hold the stamp acknowledged last, or
one that was sent later without an answer; anything else, a mixture too, is a loss.
"""
import json
import random
import sys

import nbd

BLOCK = 4096
BLOCKS = 4096
STARTED = 64


def content(block, stamp):
    return (b"%016d %014d\n" % (block, stamp)) * (BLOCK // 32)


def write(uri, path):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    sent, acknowledged, durable = {}, {}, 0
    stamp = 0
    try:
        while True:
            block = random.randrange(BLOCKS)
            stamp += 1
            sent[block] = stamp
            flags = nbd.CMD_FLAG_FUA if stamp % 16 == 0 else 0
            handle.pwrite(content(block, stamp), block * BLOCK, flags)
            acknowledged[block] = stamp
            durable += flags != 0
            if stamp == STARTED:
                open(path + ".started", "w").close()
    except nbd.Error:
        pass
    with open(path, "w") as file:
        json.dump({"sent": sent, "acknowledged": acknowledged}, file)
    print(f"   {stamp - 1} writes were acknowledged ({durable} of them with FUA), then the server was gone")
    if stamp <= STARTED:
        sys.exit(f"expected at least {STARTED} writes to be acknowledged")


def check(uri, path):
    with open(path) as file:
        told = json.load(file)
    handle = nbd.NBD()
    handle.connect_uri(uri)
    lost = 0
    for block, stamp in told["acknowledged"].items():
        found = bytes(handle.pread(BLOCK, int(block) * BLOCK))
        later = told["sent"][block]
        if found not in (content(int(block), stamp), content(int(block), later)):
            lost += 1
            if lost <= 5:
                print(f"block {block}: expected stamp {stamp} (or {later}, not acknowledged), found {found[:32]!r}")
    print(f"{len(told['acknowledged'])} blocks checked, {lost} of them lost")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2], sys.argv[3])

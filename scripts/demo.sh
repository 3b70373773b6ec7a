#!/usr/bin/env bash
# Shows what Lode promises, on real input: a disk in a file, served over NBD, killed in bad moments.
# Takes a minute or two and 6 GB of scratch space, ends by itself, and leaves nothing behind.
#
#   scripts/demo.sh              builds lode and runs
#   LODE=path/to/lode scripts/demo.sh
#   TMPDIR=/big/disk scripts/demo.sh
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# Shows a command, then runs it.
run() { printf '   $ %s\n' "$*"; "$@"; }

# --- what it needs ---------------------------------------------------------------------------------

# The Python that the nbd module was installed for need not be the first one in the path.
python_with_nbd() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import nbd' 2>/dev/null; then echo "$python"; return; fi
    done
    return 1
}

missing_packages() {
    command -v nbdcopy >/dev/null || echo libnbd-bin
    command -v qemu-img >/dev/null || echo qemu-utils
    command -v mkfs.ext4 >/dev/null && command -v debugfs >/dev/null || echo e2fsprogs
    python_with_nbd >/dev/null || echo python3-libnbd
    command -v fusermount3 >/dev/null || echo fuse3
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v make >/dev/null || echo make
}

install_missing() {
    local missing as_root=()
    missing=$(missing_packages | sort -u | tr '\n' ' ')
    [ -z "$missing" ] && return
    command -v apt-get >/dev/null || fail "expected these packages to be installed: $missing"
    if [ "$(id -u)" != 0 ]; then
        as_root=(sudo -n)
        sudo -n true 2>/dev/null || fail "expected these packages, found them missing: run  sudo apt-get install $missing"
    fi
    say "Installing what is missing: $missing"
    "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $missing >/dev/null
    missing=$(missing_packages)
    [ -z "$missing" ] || fail "expected apt-get to bring it, still missing: $missing"
}

install_missing
python=$(python_with_nbd)

if [ -z "${LODE:-}" ]; then
    say "Building lode"
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p lode-cli
    LODE=${CARGO_TARGET_DIR:-$root/target}/release/lode
fi
LODE=$(realpath "$LODE")
lode() { "$LODE" "$@"; }

# --- scratch space and processes, taken down in all cases ----------------------------------------------

work=$(mktemp -d "${TMPDIR:-/tmp}/lode-demo.XXXXXX")
server='' import='' copy='' client='' mounted=''

end() {
    local code=$? process
    trap - EXIT
    for process in $client $copy $import $server $mounted; do
        kill -9 "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    if mountpoint -q "$work/mnt" || [ -n "$mounted" ]; then umount -l "$work/mnt" 2>/dev/null || true; fi
    rm -rf "$work"
    [ $code = 0 ] || printf '\ndemo: FAILED (exit code %s)\n' $code >&2
    exit $code
}
trap end EXIT
trap 'exit 130' INT TERM
cd "$work"
free=$(df --output=avail -k . | tail -1)
[ "$free" -gt 6500000 ] || fail "expected 6.5 GB free in $work, found $((free / 1000000)) GB; set TMPDIR"

start_server() {
    : >served
    "$LODE" serve disk.lode --socket "$work/sock" "$@" >served 2>&1 &
    server=$!
    for _ in $(seq 600); do
        if grep -qx ready served; then return; fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    cat served >&2
    fail "expected the server to be ready"
}

stop_server() {
    kill -TERM "$server"
    wait "$server"
    server=''
}

kill_server() {
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    server=''
}

uri() { echo "nbd+unix:///$1?socket=$work/sock"; }

# --- the story -----------------------------------------------------------------------------------

say "Two real disk images: ext4, holding real source trees"
mkdir -p tree/project
(cd "$root" && tar -cf - --exclude=./target --exclude=./.git --exclude=./fuzz/target .) | tar -xf - -C tree/project
if [ -d /usr/include ]; then cp -rL --no-preserve=all /usr/include tree/include 2>/dev/null || true; fi
files=$(find tree -type f | wc -l)
mkfs.ext4 -q -F -d tree first.ext4 1G >/dev/null
mkdir tree/more
head -c 500M /dev/urandom >tree/more/noise
mkfs.ext4 -q -F -d tree second.ext4 1G >/dev/null
rm -r tree/more
note "first.ext4: $files files, $(du -h first.ext4 | cut -f1) used of 1 GiB; second.ext4: $(du -h second.ext4 | cut -f1)"

say "A disk in a file, with thin volumes"
run lode create disk.lode --size 4GiB
for name in image copy log; do run lode volume create disk.lode $name --size 1GiB; done

say "Serve it, and copy the first image in with a standard NBD client"
start_server
sed 's/^/   /' served
run nbdcopy --flush first.ext4 "$(uri image)"
run qemu-img compare -f raw -F raw first.ext4 "$(uri image)"
stop_server
note "server stopped"

say "Import the second image over it, and kill -9 the import half-way"
"$LODE" import disk.lode image second.ext4 >/dev/null 2>&1 &
import=$!
half=$(($(du -B1 second.ext4 | cut -f1) / 2))
read_so_far=0
while kill -0 $import 2>/dev/null; do
    # What the process has read, as the kernel counts it.
    while read -r name value; do [ "$name" = rchar: ] && read_so_far=$value; done 2>/dev/null </proc/$import/io || true
    if [ "$read_so_far" -ge $half ]; then break; fi
done
kill -9 $import 2>/dev/null || fail "expected to kill the import half-way, it was done before"
wait $import 2>/dev/null || true
import=''
note "killed after it had read $((read_so_far >> 20)) MiB of $((half >> 19)) MiB"

say "The first image is whole"
start_server
note "$(grep opened served)"
run nbdcopy "$(uri image)" back.ext4
run cmp first.ext4 back.ext4
note '$ e2fsck -fn back.ext4'
e2fsck -fn back.ext4 2>/dev/null | tail -1 | sed 's/^/   /'
mkdir out
debugfs -R "rdump / out" back.ext4 >/dev/null 2>&1
diff -r --exclude=lost+found tree out
note "every one of the $files files is there, byte for byte"

say "Kill -9 the server while nbdcopy fills one volume and another client writes to a second one"
nbdcopy second.ext4 "$(uri copy)" >/dev/null 2>&1 &
copy=$!
"$python" "$root/scripts/acknowledged.py" write "$(uri log)" acknowledged.json &
client=$!
until [ -e acknowledged.json.started ]; do
    kill -0 $client 2>/dev/null || fail "the second client ended before its writes were acknowledged"
    sleep 0.05
done
sleep 0.3
kill_server
if wait $copy 2>/dev/null; then note "(nbdcopy was done before the kill)"; fi
copy=''
wait $client
client=''

say "Open it again"
start_server
note "$(grep opened served)"
"$python" "$root/scripts/acknowledged.py" check "$(uri log)" acknowledged.json | sed 's/^/   /'
run qemu-img compare -f raw -F raw first.ext4 "$(uri image)"
stop_server

say "And all the rest of the disk is sound"
run lode check disk.lode
run lode scrub disk.lode
run lode info disk.lode

say "Import the second image undisturbed, and take it out again"
run lode import disk.lode image second.ext4
run lode export disk.lode image out.ext4
run cmp second.ext4 out.ext4

# --- files, and commands as transactions ---------------------------------------------------------------

# A source tree that is on every machine that has built lode: that of zstd.
source_tree() {
    local crate
    cargo fetch --quiet --locked --manifest-path "$root/Cargo.toml"
    for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/zstd-sys-*/zstd; do
        [ -d "$crate/lib" ] && { echo "$crate"; return; }
    done
    fail "expected the source of zstd among the dependencies that cargo has fetched, found none"
}

mount_it() {
    "$LODE" mount files.lode mnt --foreground >mounted.log &
    mounted=$!
    until grep -q '^ready' mounted.log; do
        kill -0 $mounted 2>/dev/null || fail "expected lode mount to be ready: $(cat mounted.log)"
        sleep 0.02
    done
    note "$(head -1 mounted.log)"
}

unmount_it() {
    kill -TERM $mounted
    wait $mounted
    mounted=''
}

say "Files: make a file system, mount it, and unpack a source tree"
run lode create files.lode --size 1GiB
run lode fs make files.lode
mkdir mnt
mount_it
tar cf - -C "$(source_tree)" . | { mkdir mnt/zstd; tar xf - -C mnt/zstd; }
note "$(find mnt/zstd -type f | wc -l) files"
cat >mnt/zstd/Makefile <<'MAKE'
objects = $(patsubst %.c,%.o,$(wildcard lib/common/*.c lib/compress/*.c lib/decompress/*.c))
libzstd.a: $(objects)
	ar rc $@ $^
%.o: %.c
	$(CC) -O0 -DZSTD_DISABLE_ASM -c $< -o $@
install: libzstd.a
	mkdir -p ../usr/lib ../usr/include
	cp libzstd.a ../usr/lib
	cp lib/zstd.h ../usr/include
MAKE
before=$(cd mnt && find . | sort | md5sum)

say "A build that fails half-way leaves no trace"
echo '#error this file cannot be compiled' >broken.c
note '$ lode run mnt -- sh -c "make && make install", with a file in it that cannot be compiled'
if lode run mnt -- sh -c 'cp broken.c mnt/zstd/lib/decompress/zz.c && make -s -j2 -C mnt/zstd && make -s -C mnt/zstd install' 2>/dev/null; then
    fail "expected the build to fail"
fi
[ "$before" = "$(cd mnt && find . | sort | md5sum)" ] || fail "expected no trace of the failed build, found one"
note "the tree is as it was: $(find mnt -name '*.o' | wc -l) object files"

say "One that succeeds counts all at once; first only kept, to be looked at"
run lode run mnt --keep build -- sh -c 'make -s -j2 -C mnt/zstd && make -s -C mnt/zstd install'
[ ! -e mnt/usr ] || fail "expected nobody to see it yet"
lode txn diff mnt build >changes
note "$(wc -l <changes) changes, such as"; tail -3 changes | sed 's/^/      /'
run lode txn commit mnt build
run ls mnt/usr/lib mnt/usr/include

say "kill -9 of the mount in the middle of a third; mount it again"
"$LODE" run mnt -- sh -c 'cd mnt/zstd && rm -rf lib && for n in $(seq 100000); do echo $n >file$n; done' 2>/dev/null &
client=$!
sleep 1
kill -9 $mounted
wait $mounted 2>/dev/null || true
kill $client 2>/dev/null || true
wait $client 2>/dev/null || true
client=''
mount_it
[ -e mnt/zstd/lib/zstd.h ] && [ ! -e mnt/zstd/file1 ] || fail "expected the third to have left no trace, found one"
[ -e mnt/usr/lib/libzstd.a ] || fail "expected what was committed, found it gone"
note "nothing torn: the library is there, the third left no trace"
unmount_it
run lode fs check files.lode
run lode check files.lode

say "Try next"
cat <<'NEXT'
   lode create my.lode --size 10GiB
   lode volume create my.lode data --size 4GiB
   lode serve my.lode --socket /tmp/lode.sock &
   nbdinfo --list 'nbd+unix:///?socket=/tmp/lode.sock'
   qemu-img convert -n your.qcow2 -O raw 'nbd+unix:///data?socket=/tmp/lode.sock'
   qemu-system-x86_64 ... -drive 'file=nbd+unix:///data?socket=/tmp/lode.sock,format=raw'
   kill -9 %1 whenever you like, and serve it again
   lode fs make my.lode && lode mount my.lode /mnt
   lode run /mnt --keep try -- any-program; lode txn diff /mnt try --patch
   lode bench commit1              # side by side with the raw device
   lode --help                     # everything else; README.md for the library
NEXT

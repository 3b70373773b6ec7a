#!/usr/bin/env bash
# Installs what the tests and the demo need and what is missing, without a question. Does nothing if all is there.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

# Each line: a program, and the Debian package that has it.
programs="nbdkit nbdkit
nbdcopy libnbd-bin
nbdinfo libnbd-bin
nbdfuse libnbd-bin
nbdsh python3-libnbd
qemu-img qemu-utils
qemu-io qemu-utils
qemu-nbd qemu-utils
fio fio
mkfs.xfs xfsprogs
xfs_repair xfsprogs
mkfs.ext4 e2fsprogs
debugfs e2fsprogs
fusermount3 fuse3
losetup mount
mount mount
valgrind valgrind
cmp diffutils
cc gcc"

# nbdfuse has a package of its own in some releases.
package_of() {
    if [ "$1" = nbdfuse ] && apt-cache show nbdfuse >/dev/null 2>&1; then echo nbdfuse; else echo "$2"; fi
}

missing() {
    while read -r program package; do
        command -v "$program" >/dev/null || package_of "$program" "$package"
    done <<<"$programs" | sort -u
}

command -v cargo >/dev/null || { echo 'setup: expected a Rust toolchain, found none: see https://rustup.rs' >&2; exit 1; }
if [ -z "$(missing)" ]; then exit 0; fi
command -v apt-get >/dev/null ||
    { echo "setup: expected these to be installed (names as in Debian): $(missing | tr '\n' ' ')" >&2; exit 1; }
as_root=()
if [ "$(id -u)" != 0 ]; then
    as_root=(sudo -n)
    sudo -n true 2>/dev/null ||
        { echo "setup: these packages are missing: run  sudo apt-get install $(missing | tr '\n' ' ')" >&2; exit 1; }
fi
install() {
    "${as_root[@]}" apt-get update -qq || return
    packages=$(missing | tr '\n' ' ')
    echo "setup: installing $packages"
    # shellcheck disable=SC2086 # a list of words
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages </dev/null >/dev/null
}
# A mirror may be busy for a moment.
for pause in 5 20 0; do
    install && break
    sleep "$pause"
done
[ -z "$(missing)" ] || { echo "setup: expected apt-get to bring them, still missing: $(missing | tr '\n' ' ')" >&2; exit 1; }

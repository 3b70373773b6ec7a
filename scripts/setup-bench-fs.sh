#!/usr/bin/env bash
# Brings what `lode bench-fs` needs beside the program itself into target/bench-fs, and installs what is missing:
#   passthrough_hp      libfuse's example, built from Debian's source package: the price of FUSE itself
#   project.tar         a C project to be built, a Debian source package, too
#   lode-unbracketed    the program once more, its file system without the unit round each operation
# Does nothing where all is there. Source packages come from where the machine's own apt takes packages of its release.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
place=$target/bench-fs
# The project's source package.
project=sed

say() { printf 'setup-bench-fs: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

apt=
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)

# Each line: a program, and the Debian package that has it.
programs="mkfs.xfs xfsprogs
mkfs.btrfs btrfs-progs
mkfs.ext4 e2fsprogs
losetup mount
fusermount3 fuse3
valgrind valgrind
pkg-config pkg-config
tar tar
xz xz-utils
make make
cc gcc
g++ g++"

missing() {
    while read -r program package; do
        command -v "$program" >/dev/null || echo "$package"
    done <<<"$programs"
    { command -v pkg-config >/dev/null && pkg-config --exists fuse3; } || echo libfuse3-dev
}

install_missing() {
    local packages
    packages=$(missing | sort -u | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null || fail "expected these to be installed (names as in Debian): $packages"
    "${as_root[@]}" true 2>/dev/null || fail "these packages are missing: run  sudo apt-get install $packages"
    say "installing $packages"
    "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages \
        </dev/null >/dev/null
    packages=$(missing | sort -u | tr '\n' ' ')
    [ -z "$packages" ] || fail "expected apt-get to bring them, still missing: $packages"
}

# Where apt takes this release's packages from, it finds their sources, too: the same lines, for sources.
source_lists() {
    local codename=$1 list
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$list" ] || continue
        awk -v codename="$codename" '$1 == "deb" {
            for (i = 2; i <= NF; i++) if ($i == codename || index($i, codename "-") == 1) { $1 = "deb-src"; print; break }
        }' "$list" >>"$apt/sources.list"
    done
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -f "$list" ] || continue
        # Paragraph by paragraph.
        awk -v codename="$codename" -v RS= '{
            if ($0 !~ "(^|\n)Suites:[^\n]*[ \t]" codename "([ \t\n-]|$)") next
            sub(/(^|\n)Types:[^\n]*/, "\nTypes: deb-src"); sub(/^\n/, ""); print; print ""
        }' "$list" >>"$apt/sources.list.d/bench-fs.sources"
    done
}

# Fetches the source package of that name into target/bench-fs/sources.
fetch() {
    local codename
    if [ -z "$apt" ]; then
        command -v apt-get >/dev/null || fail "expected apt-get, for Debian's source package $1"
        codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
        apt=$(realpath "$place")/apt
        rm -rf "$apt"
        mkdir -p "$apt/sources.list.d" "$apt/lists/partial"
        : >"$apt/sources.list"
        source_lists "$codename"
        options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/sources.list.d"
            -o "Dir::State::lists=$apt/lists" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
            -o APT::Sandbox::User=root)
        say 'reading what source packages there are'
        apt-get "${options[@]}" update -qq || fail "expected apt's own sources to have source packages of $codename"
    fi
    mkdir -p "$place/sources/$1"
    (cd "$place/sources/$1" && apt-get "${options[@]}" source -qq --download-only "$1") ||
        fail "expected a source package $1: see the lines above"
}

# The tar archive of a fetched package as its authors released it.
original() {
    find "$place/sources/$1" -name '*.orig.tar.*' ! -name '*.asc' | head -n 1
}

passthrough() {
    [ ! -x "$place/passthrough_hp" ] || return 0
    fetch fuse3
    rm -rf "$place/fuse3"
    mkdir -p "$place/fuse3"
    tar -xf "$(original fuse3)" -C "$place/fuse3" --strip-components=1
    say 'building passthrough_hp'
    # The definitions are what its build system would find out: Linux has all of that.
    # shellcheck disable=SC2046 # lists of words
    g++ -O2 -g -w -std=c++17 -D_REENTRANT -DHAVE_UTIMENSAT -DHAVE_POSIX_FALLOCATE -DHAVE_SETXATTR \
        $(pkg-config --cflags fuse3) \
        "$place/fuse3/example/passthrough_hp.cc" -o "$place/passthrough_hp.new" $(pkg-config --libs fuse3) -lpthread
    mv "$place/passthrough_hp.new" "$place/passthrough_hp"
}

c_project() {
    [ ! -s "$place/project.tar" ] || return 0
    fetch "$project"
    # Unpacking is measured, taking apart what is compressed is not.
    case $(original "$project") in
        *.xz) xz -dc "$(original "$project")" >"$place/project.new" ;;
        *.gz) gzip -dc "$(original "$project")" >"$place/project.new" ;;
        *.bz2) bzip2 -dc "$(original "$project")" >"$place/project.new" ;;
        *) fail "expected an archive of $project, found none" ;;
    esac
    mv "$place/project.new" "$place/project.tar"
}

unbracketed() {
    "${CARGO:-cargo}" build --release --locked -p lode-cli --features unbracketed --target-dir "$place/build"
    cp "$place/build/release/lode" "$place/lode-unbracketed.new"
    mv "$place/lode-unbracketed.new" "$place/lode-unbracketed"
}

mkdir -p "$place"
install_missing
passthrough
c_project
unbracketed

#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while. Needs the nightly toolchain, and nothing else.
#
#   scripts/fuzz.sh [TIME] [TARGET...]     60s of each target by default; TIME as 90, 90s, 10m
#
# SANITIZER=address adds the address sanitizer, for what the media do below the safe crates.
# Corpora grow in fuzz/corpus, findings are kept in fuzz/artifacts. To see one again, run the command it prints.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
time=${1:-60s}
shift || true
case $time in
    *h) seconds=$((${time%h} * 3600)) ;;
    *m) seconds=$((${time%m} * 60)) ;;
    *) seconds=${time%s} ;;
esac
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(nbd_parse nbd_session open_image probe stream)

rustup toolchain list 2>/dev/null | grep -q '^nightly' ||
    { echo "fuzz: expected the nightly toolchain, found none: run  rustup toolchain install nightly" >&2; exit 1; }

# What `cargo fuzz` does, without it: coverage for libFuzzer.
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing${SANITIZER:+ -Zsanitizer=$SANITIZER}"
cargo +nightly build --release --quiet --manifest-path "$root/fuzz/Cargo.toml" --target "$host" --bins
built=${CARGO_TARGET_DIR:-$root/fuzz/target}/$host/release

failed=()
for target in "${targets[@]}"; do
    mkdir -p "$root/fuzz/corpus/$target" "$root/fuzz/artifacts/$target"
    echo "== $target for $seconds s"
    "$built/$target" "$root/fuzz/corpus/$target" -artifact_prefix="$root/fuzz/artifacts/$target/" \
        -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -max_len=1024 -len_control=0 -print_final_stats=1 </dev/null \
        2>&1 | tee "$root/fuzz/artifacts/$target.log" | grep -vE '#[0-9]+[[:space:]]+(NEW|REDUCE|pulse)' || failed+=("$target")
done
[ ${#failed[@]} = 0 ] || { echo "fuzz: FOUND something in: ${failed[*]}" >&2; exit 1; }

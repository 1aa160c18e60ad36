#!/usr/bin/env bash
# Would a fuzzer find it? Builds the fuzzer of tcp's wire with a parser that forgives eight missing
# bytes, so that it reads over the end of some addresses, and wants AddressSanitizer's word for it;
# the parser as it is must stand as many inputs. The overflow is planted in a copy.
set -euo pipefail
clang=$(command -v clang || command -v clang-14 || true)
[ -n "$clang" ] || { echo "skipped: no clang"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$TUTTI_SOURCE"
build() {
    "$clang" -D_GNU_SOURCE -std=c11 -O1 -g -fsanitize=fuzzer,address -I. -Iinclude \
        tests/tcp/fuzz_tcp_wire.c "$1" base/crc32c.c base/clock.c -lpthread -o "$2"
}
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 4e9; }' \
    > "$scratch/probe.c"
"$clang" -fsanitize=fuzzer,address "$scratch/probe.c" -o "$scratch/probe" 2>/dev/null ||
    { echo "skipped: this clang has no libFuzzer"; exit 77; }
sed -z 's/size != \(TTI_TCP_ADVERT_HEAD_BYTES + (size_t)read.count \* TTI_TCP_ADVERT_ENTRY_BYTES\))/(size > \1 || size + 8 < \1))/' \
    transport/tcp/tcp_wire.c > "$scratch/tcp_wire.c"
if cmp -s transport/tcp/tcp_wire.c "$scratch/tcp_wire.c"; then
    echo "FAILED: the check that is to be weakened is not where it was"
    exit 1
fi
build transport/tcp/tcp_wire.c "$scratch/sound"
build "$scratch/tcp_wire.c" "$scratch/planted"
corpus=tests/fuzz/corpus/fuzz_tcp_wire
mkdir "$scratch/new" "$scratch/found"
"$scratch/sound" -seed=1 -runs=100000 -max_total_time=20 "$scratch/new" $corpus > "$scratch/log" 2>&1 ||
    { cat "$scratch/log"; echo "FAILED: a finding in the parser as it is"; exit 1; }
rm -rf "$scratch/new"
mkdir "$scratch/new"
if "$scratch/planted" -seed=1 -max_total_time=60 -artifact_prefix="$scratch/found/" \
    "$scratch/new" $corpus > "$scratch/log" 2>&1; then
    echo "FAILED: the planted overflow was not found"
    exit 1
fi
grep -E 'heap-buffer-overflow.*' "$scratch/log" | head -1
grep -q 'heap-buffer-overflow' "$scratch/log" || { cat "$scratch/log"; echo "FAILED: something else"; exit 1; }
echo "found after $(sed -n 's/^stat::number_of_executed_units: *//p; s/^#\([0-9]*\).*/\1/p' "$scratch/log" | tail -1) inputs or more"

#!/usr/bin/env bash
# libnccl.so.2 is what its name says: it exports every function of the version that it claims and
# nothing else, without symbol versions, and is small: test_nccl_exports.sh LIBRARY HEADER
set -euo pipefail
library=$1 header=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

number() { sed -n "s/^#define NCCL_$1 *\([0-9]*\)$/\1/p" "$header"; }
claimed=$(number MAJOR).$(number MINOR)
awk -v claimed="$claimed" '!/^#/ && $2 <= claimed { print $1; if ($3 == "both") print "p" $1 }' \
    "$TUTTI_SOURCE/tests/nccl/exports.txt" | sort >"$folder/expected"
[ -s "$folder/expected" ]

# names LIBRARY: the functions that it exports (linkers add marks of sections).
names() {
    nm -D --defined-only --format=posix "$1" |
        awk '$1 !~ /^(_end|_edata|__bss_start)$/ { print $1 }' | sort
}
names "$library" >"$folder/ours"
if ! diff "$folder/expected" "$folder/ours"; then
    echo "$library does not export what version $claimed exports (above: < missing, > too much)"
    exit 1
fi
readelf -d "$library" | grep -q 'SONAME.*\[libnccl\.so\.2\]'
if grep -q @ "$folder/ours"; then
    echo "$library has symbol versions; NVIDIA's has none"
    exit 1
fi

if readelf -rW "$library" | grep -E '_JUMP_SLO.* p?nccl'; then
    echo "$library may call these of another library of the process"
    exit 1
fi

# C++ programs include the header with all warnings.
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    "$compiler" -std=c++17 -Wall -Wextra -pedantic -Wconversion -Werror -DTUTTI_NCCL_WITHOUT_CUDA \
        -I"$(dirname "$header")" -fsyntax-only "$TUTTI_SOURCE/tests/nccl/nccl_cplusplus.cpp"
    echo "$compiler takes nccl.h"
done

# A program may ask for an earlier version; one that wants the interface for kernels is told.
# preprocessed FLAGS...: what a program sees of the version, or the compiler's words.
preprocessed() {
    printf '#include <nccl.h>\n%s\nint seen[] = {NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_VERSION_CODE};\n' \
        "${INCLUDE:-}" >"$folder/seen.c"
    cc -DTUTTI_NCCL_WITHOUT_CUDA -I"$(dirname "$header")" "$@" -E -P "$folder/seen.c" 2>&1 || true
}
preprocessed | grep -q "{2, ${claimed#*.}, .*, 23007}"
preprocessed -DTUTTI_NCCL_VERSION_CODE=22707 | grep -qF '{(22707 / 10000), (22707 / 100 % 100), (22707 % 100), 22707}'
for wrong in 2707 23008 23100; do
    preprocessed -DTUTTI_NCCL_VERSION_CODE=$wrong | grep -q 'error.*a version of NCCL from 20900'
done
INCLUDE='#include <nccl_device.h>' preprocessed | grep -q 'error.*no interface for kernels'

strip -o "$folder/stripped" "$library"
bytes=$(stat -c %s "$folder/stripped")
[ "$bytes" -lt 10000000 ] || { echo "stripped, it has $bytes bytes; at most 10 MB"; exit 1; }
echo "$(wc -l <"$folder/ours") functions of version $claimed, $bytes bytes stripped"

# The table itself, where NVIDIA's library of that version is at hand.
for real in "${TUTTI_NVIDIA_NCCL:-}" /usr/local/cuda/lib64/libnccl.so.2 /usr/lib/*/libnccl.so.2; do
    if [ -f "$real" ] && [ "$(readlink -f "$real")" != "$(readlink -f "$library")" ] &&
        grep -aq "NCCL version ${claimed//./\\.}\." "$real"; then
        names "$real" >"$folder/theirs"
        diff "$folder/expected" "$folder/theirs"
        echo "the same as $real"
        exit 0
    fi
done
echo "not compared: no libnccl.so.2 of NVIDIA's with version $claimed here"

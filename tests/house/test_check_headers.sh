#!/usr/bin/env bash
# check_headers finds a header that leans on another, and a public one that is no C++.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

headers="$checks/check_headers"
passes "$headers" "$tree"

echo 'size_t tti_leans(void);' >"$tree/base/leans.h"
finds "base/leans.h: does not compile alone" "$headers" "$tree"
rm "$tree/base/leans.h"

echo 'struct tti_twice { int x; };' >"$tree/base/unguarded.h"
finds "base/unguarded.h: does not compile alone" "$headers" "$tree"
rm "$tree/base/unguarded.h"

printf '#ifndef X\n#define X\n/* extern "C" */\nint tutti_f(int class);\n#endif\n' \
    >"$tree/include/tutti/no_cxx.h"
finds "include/tutti/no_cxx.h: does not compile alone with g++" "$headers" "$tree"

printf '#ifndef X\n#define X\nint tutti_f(void);\n#endif\n' >"$tree/include/tutti/no_cxx.h"
finds 'include/tutti/no_cxx.h: has no extern "C"' "$headers" "$tree"

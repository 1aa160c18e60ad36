#!/usr/bin/env bash
# check_exports finds a function that is missing and one too many: test_check_exports.sh CC
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

exports="$checks/check_exports"
library=$tree/libx.so
declared='int tutti_one(void) { return 1; } const char *tutti_two(size_t n, int o) { (void)n; (void)o; return ""; }'
# make TEXT: a library of the declared functions and TEXT.
make_library() {
    echo "#include \"tutti/tutti.h\"
$1" | "$compiler" -shared -fPIC -I"$tree/include" -fvisibility=hidden -o "$library" -x c -
}
compiler=$1
make_library "$declared int tti_hidden(void); int tti_hidden(void) { return 0; }"
passes "$exports" "$library" "$tree"

make_library "int tutti_one(void) { return 1; }"
finds "tutti_two is declared but" "$exports" "$library" "$tree"

make_library "$declared TUTTI_API int tti_leak(void); int tti_leak(void) { return 0; }"
finds "exports tti_leak" "$exports" "$library" "$tree"

make_library "$declared TUTTI_API int tutti_data; int tutti_data = 3;"
finds "exports tutti_data" "$exports" "$library" "$tree"

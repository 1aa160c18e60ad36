#!/usr/bin/env bash
# check_format finds a file that clang-format would change, and repairs it.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

cp "$TUTTI_SOURCE/.clang-format" "$tree"
rm -r "$tree"/{include,plan,coll,tests}
passes "$checks/check_format" "$tree"

printf 'int f(void){return 1;}\n' >"$tree/base/untidy.c"
finds base/untidy.c: "$checks/check_format" "$tree"
passes "$checks/check_format" --repair "$tree"
passes "$checks/check_format" "$tree"

rm -r "$tree"/base
finds "nothing to look at" "$checks/check_format" "$tree"

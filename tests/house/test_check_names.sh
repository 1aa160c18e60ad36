#!/usr/bin/env bash
# check_names finds a name that is taken, one that is not snake_case, and a file too long.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

names="$checks/check_names"
passes "$names" "$tree"

touch "$tree/plan/text.c"
finds "plan/text.c: the name is taken by base/text.c" "$names" "$tree"
rm "$tree/plan/text.c"

touch "$tree/plan/CamelCase.c"
finds "plan/CamelCase.c: the name is not snake_case" "$names" "$tree"
rm "$tree/plan/CamelCase.c"

seq 800 | sed 's/.*/int x&;/' >"$tree/plan/long.c"
mentions "plan/long.c: warning: 800 lines" "$names" "$tree"
echo 'int more;' >>"$tree/plan/long.c"
finds "plan/long.c: 801 lines" "$names" "$tree"

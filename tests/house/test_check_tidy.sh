#!/usr/bin/env bash
# check_tidy finds planted bugs, those of the analyzer too, and again on a second run; a clean file
# stays clean.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

cp "$TUTTI_SOURCE/.clang-tidy" "$tree"
tidy="$checks/check_tidy"
build=$tree/build
mkdir "$build"

# compile FILE: the only entry of compile_commands.json.
compile() {
    cat >"$build/compile_commands.json" <<END
[{"directory": "$tree", "file": "$tree/$1",
  "command": "clang -std=c11 -I$tree/include -I$tree -o x.o -c $tree/$1"}]
END
}
compile base/text.c
passes "$tidy" "$build" "$tree"
passes "$tidy" "$build" "$tree"

printf 'int f(int x);\nint f(int x)\n{\n    if (x > 1);\n        x = 0;\n    return x;\n}\n' >"$tree/base/semicolon.c"
compile base/semicolon.c
finds "bugprone-suspicious-semicolon" "$tidy" "$build" "$tree"
finds "bugprone-suspicious-semicolon" "$tidy" "$build" "$tree"

printf 'int g(int x);\nint g(int x)\n{\n    int *p = 0;\n    return x ? *p : 0;\n}\n' >"$tree/base/null.c"
compile base/null.c
finds "clang-analyzer-core.NullDereference" "$tidy" "$build" "$tree"
finds "clang-analyzer-core.NullDereference" "$tidy" "$build" "$tree"

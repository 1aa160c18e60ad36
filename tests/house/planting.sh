# shellcheck shell=bash
# Sourced by the tests of the checks: a small tree like this repository's, and the two assertions.
# A test is: the clean tree passes, each planted violation is found and named.
set -euo pipefail
# shellcheck disable=SC2034 # used by the tests that source this
checks=$TUTTI_SOURCE/tools/check
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mkdir -p "$tree"/{base,plan,transport,launch,coll/algorithms,include/tutti,tests/base}
cat >"$tree/include/tutti/tutti.h" <<'END'
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_API __attribute__((visibility("default")))
/* TUTTI_API int only_in_a_comment(void); */
TUTTI_API int tutti_one(void);
TUTTI_API const char *tutti_two(size_t length,
                                int other);
#ifdef __cplusplus
}
#endif
#endif
END
cat >"$tree/base/text.h" <<'END'
#ifndef TTI_BASE_TEXT_H
#define TTI_BASE_TEXT_H
#include <stddef.h>
size_t tti_text(const char *text);
#endif
END
cat >"$tree/base/text.c" <<'END'
#include "base/text.h"

size_t tti_text(const char *text)
{
    return text ? 1 : 0;
}
END
printf '#include "base/text.h"\n#include <string.h>\n' >"$tree/plan/plan.c"
printf '#include "plan/plan.h"\n#include "base/text.h"\n' >"$tree/coll/algorithms/ring.c"
printf '#include "coll/algorithms/ring.h"\n#include "launch/boot.h"\n' >"$tree/coll/comm.c"
printf '#include "coll/comm.h"\n' >"$tree/tests/base/test_text.c"
echo 'tti_room(plan SOURCES plan.c LINKS tti_base)' >"$tree/plan/CMakeLists.txt"

# passes COMMAND...: the check must be clean.
passes() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    [ $status != 77 ] || { echo "$output"; exit 77; }
    [ $status = 0 ] || { echo "must pass: $*"; echo "$output"; exit 1; }
}

# mentions TEXT COMMAND...: the check must be clean, and say TEXT all the same.
mentions() {
    local output
    output=$("${@:2}" 2>&1) || { echo "must pass: ${*:2}"; echo "$output"; exit 1; }
    grep -qF -- "$1" <<<"$output" || { echo "must say \"$1\": ${*:2}"; echo "$output"; exit 1; }
}

# finds TEXT COMMAND...: the check must fail with status 1 and a line that has TEXT.
finds() {
    local text=$1 output status=0
    shift
    output=$("$@" 2>&1) || status=$?
    [ $status = 1 ] || { echo "must fail (status $status): $*"; echo "$output"; exit 1; }
    grep -qF -- "$text" <<<"$output" || { echo "must say \"$text\": $*"; echo "$output"; exit 1; }
}

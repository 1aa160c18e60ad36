#!/usr/bin/env bash
# says.sh REGEX COMMAND...: runs it, and passes if it passes and what it says, all in one line, matches
# (which of several ways was taken shows in nothing else). CTest's PASS_REGULAR_EXPRESSION would not look
# at the exit status.
set -euo pipefail
wanted=$1
shift
status=0
said=$("$@" 2>&1) || status=$?
printf '%s\n' "$said"
[ $status = 0 ] || { echo "FAILED: status $status"; exit 1; }
grep -Eq -- "$wanted" <<<"${said//$'\n'/ }" || { echo "FAILED: it did not say: $wanted"; exit 1; }

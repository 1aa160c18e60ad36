#!/usr/bin/env bash
# The commands of README.md and docs/plans.md run, and print what they show; their picture is what `draw` draws; the
# flags that README.md tells of exist. A command that fails and an output that differs are found.
set -euo pipefail
outputs=$TUTTI_SOURCE/tools/readme_outputs
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$outputs"
"$outputs" "$TUTTI_SOURCE/docs/plans.md"
"$TUTTI_BIN/tutti-plan" draw --coll all_reduce --algo ring --ranks 4 -o ring.svg >/dev/null
cmp ring.svg "$TUTTI_SOURCE/docs/pictures/ring_all_reduce.svg"

"$TUTTI_BIN/allreduce_bench" --help >help
flags=$(sed -n '/^### allreduce_bench/,/^### tutti-plan/p' "$TUTTI_SOURCE/README.md" |
    sed -n '/^| Flag/,/^$/p' | grep -oE '`--?[a-zA-Z]+`' | tr -d '`')
[ "$(wc -w <<<"$flags")" -gt 15 ]
for flag in $flags; do
    grep -qE "(^|[ ,])$flag([ ,]|$)" help || { echo "allreduce_bench has no $flag"; exit 1; }
done

# refuses TEXT FILE
refuses() {
    local said status=0
    said=$("$outputs" "$2" 2>&1) || status=$?
    if [ $status = 0 ] || ! grep -qF "$1" <<<"$said"; then
        echo "readme_outputs must fail and say \"$1\", but ends with $status and says: $said"
        exit 1
    fi
}
fence='```'
printf -- '<!-- output: echo one -->\n%s\ntwo\n%s\n' "$fence" "$fence" >differs.md
refuses "not what is printed now: echo one" differs.md
printf -- '<!-- run -->\n%ssh\nexit 3\n%s\n' "$fence" "$fence" >fails.md
refuses "exit 3: exit status 3" fails.md
printf 'No command here.\n' >empty.md
refuses "no command is marked" empty.md

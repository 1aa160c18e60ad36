#!/usr/bin/env bash
# The pictures and outputs of docs/topology.md are up to date; one that is not is found.
set -euo pipefail
"$TUTTI_SOURCE/tools/topology_pictures"
"$TUTTI_SOURCE/tools/readme_outputs" "$TUTTI_SOURCE/docs/topology.md"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tools" "$folder/docs"
cp "$TUTTI_SOURCE/tools/topology_pictures" "$folder/tools"
fence='```'
command='build/bin/tutti-topo -s "2 gpus, mesh 50" -o docs/a.svg'
printf -- '<!-- picture -->\n%ssh\n%s\n%s\n' "$fence" "$command" "$fence" >"$folder/docs/topology.md"
check() { "$folder/tools/topology_pictures" "$@"; }
if check; then echo "a picture that is missing is not found"; exit 1; fi
check --write
check
echo "<!-- changed -->" >>"$folder/docs/a.svg"
if check; then echo "a picture that was changed is not found"; exit 1; fi
printf 'No picture here.\n' >"$folder/docs/topology.md"
if check; then echo "a page without pictures passes"; exit 1; fi

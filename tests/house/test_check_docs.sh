#!/usr/bin/env bash
# check_docs finds a link that leads nowhere, an unfinished merge, a variable without a row and a row
# without a variable, an outdated program, a section that is not listed, an outdated quote, and names that are not there.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

docs="$checks/check_docs"
mkdir -p "$tree/docs" "$tree/examples"
printf 'int main(void)\n{\n    return 0;\n}\n' >"$tree/examples/hello.c"
echo 'const char *text = getenv("TUTTI_LOG");' >"$tree/base/log.c"

write() {
    cat >"$tree/README.md" <<'END'
# Title
[a room](plan/plan.c), [a heading](docs/tour.md#one-hop), [the web](https://example.org/x).
```c
int main(void)
{
    return 0;
}
```
END
    cat >"$tree/docs/settings.md" <<'END'
| Variable | Meaning |
|---|---|
| `TUTTI_LOG` | log |
END
    cat >"$tree/docs/decisions.md" <<'END'
# Decisions
## By subject
- [A thing](#a-thing)
## A thing
Why.
END
    cat >"$tree/docs/tour.md" <<'END'
# Tour
## One hop
`tti_text()` is in `base/text.c` and `text.h`; from `base/text.c`:
```c
size_t tti_text(const char *text)
...
    return text ? 1 : 0;
```
END
}
# plant FILE SED TEXT: with this change the check must say TEXT.
plant() {
    write
    sed -i "$2" "$tree/$1"
    finds "$3" "$docs" "$tree"
}

write
passes "$docs" "$tree"
plant README.md 's/plan.c/gone.c/' "README.md:2: the link to plan/gone.c leads nowhere"
plant README.md '2s/^/<<<<<<< HEAD\n/' "README.md:2: a mark of an unfinished merge"
plant README.md 's/#one-hop/#two-hops/' "docs/tour.md has no heading #two-hops"
plant docs/settings.md '/TUTTI_LOG/d' "docs/settings.md: no row for TUTTI_LOG, which base/log.c has"
plant docs/settings.md 's/TUTTI_LOG/TUTTI_LOC/' "TUTTI_LOC has a row, but no code reads it"
plant README.md 's/return 0/return 1/' "the program shown is not examples/hello.c"
plant docs/decisions.md '/^- /d' "\"A thing\" stands 0 times in the list"
plant docs/decisions.md 's/^- .*/&\n&/' "\"A thing\" stands 2 times in the list"
plant docs/tour.md 's/? 1 : 0/? 2 : 0/' "docs/tour.md:4: the quote is no longer in base/text.c"
plant docs/tour.md '/^\.\.\./d' "the quote is no longer in base/text.c"
plant docs/tour.md 's/; from `base\/text.c`//; s/is in `base\/text.c` and `text.h`/is/' "names no file"
plant docs/tour.md 's/tti_text()/tti_words()/' "docs/tour.md:3: no source has tti_words"
plant docs/tour.md 's/`text.h`/`test.h`/' "docs/tour.md:3: there is no test.h"

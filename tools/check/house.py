"""What the checks of this folder share: which files to look at, and how to report.

A check is a program `check_x [ROOT]` (default: this repository). It prints one line a finding,
`path:line: what is wrong`, then a summary. Exit status: 0 clean, 1 findings, 77 skipped because a
tool is missing. `./dev check` runs them all; tests/house/ plants a violation for each."""

import os
import re
import subprocess
import sys

SKIPPED = 77


def root():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))


def files(top, *suffixes):
    """Paths below `top` with one of the suffixes (all without), sorted: what git tracks or would
    track; every file outside build/ where `top` is no git checkout."""
    git = subprocess.run(
        ["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True)
    if git.returncode == 0:
        names = {name for name in git.stdout.split("\0") if name}
    else:
        names = set()
        for folder, below, here in os.walk(top):
            below[:] = [b for b in below if b not in (".git", "build", "out", "__pycache__")]
            names.update(os.path.relpath(os.path.join(folder, name), top) for name in here)
    return sorted(name for name in names
                  if os.path.isfile(os.path.join(top, name))
                  and (not suffixes or name.endswith(suffixes)))


def read(top, name):
    with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
        return file.read()


INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def includes(top, name):
    """(line number, '"' or '<', path) of each #include."""
    for number, line in enumerate(read(top, name).splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def finish(check, looked_at, findings):
    for finding in findings:
        print(finding)
    if not looked_at:
        findings = ["nothing"]
        print(f"{check}: found nothing to look at; that is a failure, not a pass")
    else:
        print(f"{check}: {looked_at} looked at, {len(findings)} findings")
    sys.exit(1 if findings else 0)


def skip(check, why):
    print(f"{check}: SKIPPED: {why}")
    sys.exit(SKIPPED)

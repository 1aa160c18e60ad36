"""What the ranks of this folder's tests share: where the package is, and calls that must fail."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "python"))


def refused(kind, part, call):
    """A call that must raise this, with that in its text."""
    try:
        call()
    except kind as error:
        assert part in str(error), f"\"{error}\" does not say \"{part}\""
        return error
    raise AssertionError(f"taken: must be refused with \"{part}\"")

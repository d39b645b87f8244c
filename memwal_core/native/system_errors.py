"""Errors of the machine under native libraries, which say nothing about the bytes that were read.

Whoever takes them for damage gives up rows that are whole.
"""

from __future__ import annotations

import re

# No permission, too many threads, no directory, too many open files, no room, read-only, a name too long, a quota.
_NUMBERS = frozenset({1, 11, 13, 20, 23, 24, 27, 28, 30, 36, 122})
MAKE_ROOM = "make room in the directory for temporary files, or let more files be open, then try again"
"""What to do where Lance is handed a file of ours and cannot use it."""
_IN_TEXT = re.compile(r"\bos error (\d+)|\bOs \{ code: (\d+)")


def is_of_system(error: BaseException) -> bool:
    """Return whether the operating system refused something: a file, a thread, room on the disk.

    Rust writes the number of such an error into the text of another one, or of a panic.
    """
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    return any(int(number) in _NUMBERS for match in _IN_TEXT.findall(str(error)) for number in match if number)

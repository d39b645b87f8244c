"""Reading what ``strace -f -y -xx`` wrote: one system call after the other, of all threads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TRACED = (
    "open", "openat", "creat", "close", "dup", "dup2", "dup3", "lseek", "mmap",
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "truncate", "ftruncate", "fallocate",
    "copy_file_range", "sendfile", "splice", "io_uring_setup",
    "link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "mkdir", "mkdirat", "rmdir", "fsync", "fdatasync",
    "clone", "clone3", "fork", "vfork", "execve",
)  # fmt: skip
"""Every call that may change a directory or the bytes in it, and those that say which file a number means."""

BEGIN_THREAD = ("clone", "clone3", "fork", "vfork")
"""Calls that return a new thread, which shares the open files of the old one or has a copy of them."""

_LINE = re.compile(r"^(\d+)\s+(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)(.*)$", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PLACE = re.compile(r"<((?:\\x[0-9a-f]{2})*)>")
_UNFINISHED = " <unfinished ...>"
_NEVER_ENDED = "= ?"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One system call that succeeded.

    Attributes:
        name: Of the call.
        arguments: As strace wrote them.
        result: What it returned.
        thread: Which called it.
        began: Line of the trace in which it began.
        ended: Line in which it ended.
    """

    name: str
    arguments: tuple[str, ...]
    result: int
    thread: int
    began: int
    ended: int

    def number(self, place: int) -> int:
        """Return an argument that is a number, or the number of an open file."""
        return int(self.arguments[place].partition("<")[0])

    def data(self, place: int) -> bytes:
        """Return the bytes of an argument; those of all parts of a vector."""
        return b"".join(map(_unhex, _STRING.findall(self.arguments[place])))

    def path(self, place: int) -> str:
        """Return the absolute path of an argument."""
        return os.path.normpath(os.path.join("/", os.fsdecode(self.data(place))))

    def path_at(self, place: int) -> str:
        """Return the absolute path of an open directory and a path relative to it."""
        directory = _PLACE.search(self.arguments[place])
        above = os.fsdecode(_unhex(directory.group(1))) if directory else "/"
        return os.path.normpath(os.path.join(above, os.fsdecode(self.data(place + 1))))

    @property
    def shares_files(self) -> bool:
        """Whether the thread that this call begins shares its open files with the one that began it."""
        return any("CLONE_FILES" in argument for argument in self.arguments)

    def has(self, place: int, flag: str) -> bool:
        """Return whether an argument of flags has one."""
        return len(self.arguments) > place and flag in self.arguments[place].split("|")


@dataclass(frozen=True, slots=True)
class Closing:
    """An open file's number is given back; it may be given out again before the call ends."""

    thread: int
    number: int


def read_trace(lines: Iterable[str]) -> Iterator[SystemCall | Closing]:
    """Return the successful calls in the order in which they ended, and closings as they began."""
    begun: dict[str, tuple[int, str]] = {}
    for place, line in enumerate(lines):
        found = _LINE.match(line.rstrip("\n"))
        if found is None:
            continue
        thread, text = found.groups()
        resumed = _RESUMED.match(text)
        if resumed is not None:
            began, first = begun.pop(thread)
            text = first + resumed.group(2)
        else:
            began = place
            if text.startswith("close("):
                yield Closing(int(thread), int(text[len("close(") :].partition("<")[0].partition(")")[0]))
            if text.endswith(_UNFINISHED):
                begun[thread] = (began, text.removesuffix(_UNFINISHED))
                continue
        call = _CALL.match(text)
        if call is None or call.group(1) == "close" or int(call.group(3)) < 0:
            continue
        yield SystemCall(call.group(1), tuple(_split(call.group(2))), int(call.group(3)), int(thread), began, place)


def unsure_paths(lines: Iterable[str]) -> frozenset[str]:
    """Return the paths that calls name which a kill ended: nobody knows whether these took effect."""
    texts: dict[str, str] = {}
    for line in lines:
        found = _LINE.match(line.rstrip("\n"))
        if found is None:
            continue
        thread, text = found.groups()
        if text.endswith(_UNFINISHED):
            texts[thread] = text
        elif _RESUMED.match(text) and not text.endswith(_NEVER_ENDED):
            texts.pop(thread, None)
        elif text.endswith(_NEVER_ENDED):
            texts[thread] = texts.get(thread, text)
    places = [each for text in texts.values() for each in (*_PLACE.findall(text), *_STRING.findall(text))]
    return frozenset(os.path.normpath(os.fsdecode(_unhex(each))) for each in places)


def _split(arguments: str) -> list[str]:
    """Part arguments at the commas between them, not at those of a vector."""
    if "[" not in arguments:
        return arguments.split(", ")
    before, _, rest = arguments.partition("[")
    vector, _, after = rest.rpartition("]")
    return [*before.rstrip(", ").split(", "), vector, *after.removeprefix(", ").split(", ")]


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))

"""From system calls to operations, with a copy of the directory in memory that tells which file a call means."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from testkit.powercut.operations import ROOT, Mark, Names, Operation, Recording, Resize, Slot, Sync, Write
from testkit.powercut.syscalls import BEGIN_THREAD, Closing, SystemCall, read_trace

_MKDIR = ("mkdir", "mkdirat")
_WRITES = ("O_WRONLY", "O_RDWR")


class UnknownCallError(Exception):
    """The process changed the directory by a call that the recording does not understand."""


@dataclass(slots=True)
class _OpenFile:
    """An open file; ``inode`` is None for the file of the marks."""

    inode: int | None
    appends: bool = False
    offset: int = 0


class _OpenFiles:
    """What the numbers of open files mean, to each process of its own; files are closed where another program begins.

    Args:
        calls: All that are to be played: a new thread may act before the call that began it returns.
    """

    def __init__(self, calls: Iterable[SystemCall] = ()) -> None:
        self._begun = {call.result: call for call in calls if call.name in BEGIN_THREAD}
        self._by_thread: dict[int, dict[int, _OpenFile]] = {}

    def of(self, thread: int) -> dict[int, _OpenFile]:
        if thread not in self._by_thread:
            begun = self._begun.get(thread)
            inherited = self.of(begun.thread) if begun is not None else {}
            self._by_thread[thread] = inherited if begun is not None and begun.shares_files else dict(inherited)
        return self._by_thread[thread]


class Replay:
    """Plays system calls back.

    Args:
        root: The recorded directory, absolute and without links. It was empty.
        marks: The file, outside of it, to which the process wrote its marks, one JSON document per call.
    """

    def __init__(self, root: str, marks: str) -> None:
        """Begin with an empty directory."""
        self._root = root
        self._marks = marks
        self._operations: list[Operation] = []
        self._ended: list[int] = []
        self._directories: dict[int, dict[str, int]] = {ROOT: {}}
        self._paths: defaultdict[int, set[str]] = defaultdict(set)
        self._sizes: dict[int, int] = {}
        self._inodes = count(ROOT + 1)
        self._open_files = _OpenFiles()
        self._line = 0
        self._to_come: defaultdict[str, list[SystemCall]] = defaultdict(list)
        self._calls: dict[str, Callable[[SystemCall], None]] = {
            "open": self._opened, "openat": self._opened, "creat": self._opened,
            "dup": self._duplicated, "dup2": self._duplicated, "dup3": self._duplicated,
            "lseek": self._moved,
            "write": self._wrote, "writev": self._wrote,
            "pwrite64": self._wrote_at, "pwritev": self._wrote_at, "pwritev2": self._wrote_at,
            "ftruncate": self._resized, "truncate": self._resized_by_path,
            "link": self._linked, "linkat": self._linked,
            "rename": self._renamed, "renameat": self._renamed, "renameat2": self._renamed,
            "unlink": self._removed, "unlinkat": self._removed, "rmdir": self._removed,
            "mkdir": self._made_directory, "mkdirat": self._made_directory,
            "fsync": self._synced, "fdatasync": self._synced,
            "execve": self._began_program,
        }  # fmt: skip

    def play(self, lines: Iterable[str]) -> None:
        """Play what the calls of one process and its children did, after those of earlier processes.

        Raises:
            UnknownCallError: A call that changes the directory is not understood.
        """
        self._ended = [-1] * len(self._operations)
        calls = list(read_trace(lines))
        self._open_files = _OpenFiles(call for call in calls if isinstance(call, SystemCall))
        self._to_come.clear()
        for call in calls:
            if isinstance(call, SystemCall) and call.name in _MKDIR:
                self._to_come[_made(call)].append(call)
        for call in calls:
            if isinstance(call, Closing):
                self._open_files.of(call.thread).pop(call.number, None)
            elif call.name in self._calls:
                self._line = call.ended
                self._calls[call.name](call)
            elif call.name not in BEGIN_THREAD:
                self._require_elsewhere(call)

    def recording(self) -> Recording:
        """Return everything that was played."""
        return Recording(
            root=self._root,
            operations=tuple(self._operations),
            directories=frozenset(self._directories),
            paths=MappingProxyType({inode: frozenset(paths) for inode, paths in self._paths.items()}),
        )

    def _began_program(self, call: SystemCall) -> None:
        self._open_files.of(call.thread).clear()

    def _opened(self, call: SystemCall) -> None:
        path, flags = (call.path_at(0), 2) if call.name == "openat" else (call.path(0), 1)
        opened = self._open_files.of(call.thread)
        opened.pop(call.result, None)
        if path == self._marks:
            opened[call.result] = _OpenFile(None)
        if path == self._root:
            opened[call.result] = _OpenFile(ROOT)
        slot = self._slot(path)
        if slot is None:
            return
        if call.has(flags, "O_TMPFILE"):
            raise UnknownCallError(f"O_TMPFILE in {path}")
        inode = self._find(slot)
        if inode is None:
            inode = next(self._inodes)
            self._sizes[inode] = 0
            self._name((slot, inode))
        elif call.name == "creat" or (call.has(flags, "O_TRUNC") and any(call.has(flags, each) for each in _WRITES)):
            self._resize(inode, 0)
        opened[call.result] = _OpenFile(inode, call.has(flags, "O_APPEND"))

    def _duplicated(self, call: SystemCall) -> None:
        opened = self._open_files.of(call.thread)
        opened.pop(call.result, None)
        found = opened.get(call.number(0))
        if found is not None:
            opened[call.result] = found

    def _moved(self, call: SystemCall) -> None:
        found = self._open_files.of(call.thread).get(call.number(0))
        if found is not None:
            found.offset = call.result

    def _wrote(self, call: SystemCall) -> None:
        found = self._open_files.of(call.thread).get(call.number(0))
        if found is None:
            return
        data = call.data(1)[: call.result]
        if found.inode is None:
            self._add(Mark(json.loads(data)))
            return
        if found.appends:
            found.offset = self._sizes[found.inode]
        self._write(found.inode, found.offset, data)
        found.offset += len(data)

    def _wrote_at(self, call: SystemCall) -> None:
        found = self._open_files.of(call.thread).get(call.number(0))
        if found is not None and found.inode is not None:
            place = -1 if call.name != "pwritev2" else -2
            self._write(found.inode, int(call.arguments[place]), call.data(1)[: call.result])

    def _resized(self, call: SystemCall) -> None:
        found = self._open_files.of(call.thread).get(call.number(0))
        if found is not None and found.inode is not None:
            self._resize(found.inode, call.number(1))

    def _resized_by_path(self, call: SystemCall) -> None:
        slot = self._slot(call.path(0))
        inode = self._find(slot) if slot is not None else None
        if inode is not None:
            self._resize(inode, call.number(1))

    def _linked(self, call: SystemCall) -> None:
        old, new = self._two_slots(call)
        if old is None and new is None:
            return
        inode = self._find(old) if old is not None else None
        if inode is None or new is None:
            raise UnknownCallError(f"a link into or out of the directory: {call.arguments}")
        self._name((new, inode))

    def _renamed(self, call: SystemCall) -> None:
        old, new = self._two_slots(call)
        if old is None and new is None:
            return
        inode = self._find(old) if old is not None else None
        if inode is None or old is None or new is None or call.has(4, "RENAME_EXCHANGE"):
            raise UnknownCallError(f"a rename into or out of the directory: {call.arguments}")
        if self._find(new) != inode:
            self._name((old, None), (new, inode))

    def _removed(self, call: SystemCall) -> None:
        slot = self._slot(call.path_at(0) if call.name == "unlinkat" else call.path(0))
        if slot is not None:
            self._name((slot, None))

    def _made_directory(self, call: SystemCall) -> None:
        if call in self._to_come[_made(call)]:
            self._slot(_made(call))

    def _make(self, path: str, slot: Slot) -> None:
        """Make a directory whose making is under way: another thread's use of it may be seen before its end."""
        if self._to_come[path] and self._to_come[path][0].began <= self._line:
            del self._to_come[path][0]
            inode = next(self._inodes)
            self._directories[inode] = {}
            self._name((slot, inode))

    def _synced(self, call: SystemCall) -> None:
        found = self._open_files.of(call.thread).get(call.number(0))
        if found is not None and found.inode is not None:
            self._add(Sync(found.inode, bisect_left(self._ended, call.began)))

    def _require_elsewhere(self, call: SystemCall) -> None:
        """Refuse a call that may have changed the directory in a way that is not played back."""
        number = {"mmap": 4, "fallocate": 0, "copy_file_range": 2, "sendfile": 0, "splice": 2}.get(call.name)
        if number is not None and call.number(number) not in self._open_files.of(call.thread):
            return
        if call.name == "mmap" and not (call.has(3, "MAP_SHARED") and call.has(2, "PROT_WRITE")):
            return
        raise UnknownCallError(f"{call.name}{call.arguments}"[:500])

    def _two_slots(self, call: SystemCall) -> tuple[Slot | None, Slot | None]:
        if call.name in ("link", "rename"):
            return self._slot(call.path(0)), self._slot(call.path(1))
        return self._slot(call.path_at(0)), self._slot(call.path_at(2))

    def _slot(self, path: str) -> Slot | None:
        """Return the name that a path below the root means; None for other paths, and for the root itself."""
        if not path.startswith(f"{self._root}/"):
            return None
        names = path.removeprefix(f"{self._root}/").split("/")
        directory = ROOT
        for number, name in enumerate(names, 1):
            if self._find((directory, name)) is None:
                self._make("/".join([self._root, *names[:number]]), (directory, name))
            if number < len(names):
                directory = self._directories[directory][name]
        return directory, names[-1]

    def _find(self, slot: Slot) -> int | None:
        return self._directories[slot[0]].get(slot[1])

    def _name(self, *changes: tuple[Slot, int | None]) -> None:
        for (directory, name), inode in changes:
            names = self._directories[directory]
            if inode is None:
                names.pop(name, None)
                continue
            names[name] = inode
            above = next(iter(self._paths[directory]), "")
            self._paths[inode].add(f"{above}/{name}" if above else name)
        self._add(Names(changes))

    def _write(self, inode: int, offset: int, data: bytes) -> None:
        self._sizes[inode] = max(self._sizes[inode], offset + len(data))
        self._add(Write(inode, offset, data))

    def _resize(self, inode: int, size: int) -> None:
        self._sizes[inode] = size
        self._add(Resize(inode, size))

    def _add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._ended.append(self._line)


def _made(call: SystemCall) -> str:
    """Return the directory that a call makes."""
    return call.path_at(0) if call.name == "mkdirat" else call.path(0)

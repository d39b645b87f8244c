"""What a power cut leaves on the disk; see the package for the model."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memwal_core.rng import Rng
from testkit.powercut.operations import ROOT, Mark, Names, Recording, Resize, Slot, Sync, SyncClass, Write

_PAGE_BYTES = 4096
_CHANCES = (0.0, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Losses:
    """How probable it is that something unsynced is lost.

    Attributes:
        data: Bytes of a file, or part of them.
        given: A new name.
        taken: The removal of a name: the name is back.
    """

    data: float
    given: float
    taken: float

    @classmethod
    def drawn(cls, rng: Rng) -> Losses:
        """Draw the losses of one cut: nothing, some, or everything of each kind."""
        return cls(rng.choice(_CHANCES), rng.choice(_CHANCES), rng.choice(_CHANCES))


NO_LOSSES = Losses(0, 0, 0)


class Disk:
    """The disk after a cut.

    Args:
        recording: What the process did.
        place: Number of operations that had ended.
        without: Syncs of these classes are taken for not done.
    """

    def __init__(self, recording: Recording, place: int, without: Collection[SyncClass] = ()) -> None:
        """Find out what is on the disk for sure."""
        self._recording = recording
        self._operations = recording.operations[:place]
        self._settled = 0
        self._synced: dict[int, int] = {}
        for number, operation in enumerate(self._operations):
            if isinstance(operation, Mark) and operation.said.get("settled"):
                self._settled = number
            if isinstance(operation, Sync) and recording.class_of(operation.inode) not in without:
                self._synced[operation.inode] = max(self._synced.get(operation.inode, 0), operation.began)

    def build(self, rng: Rng, losses: Losses) -> None:
        """Put one of the states that the cut may leave in the place of the recorded directory."""
        shutil.rmtree(self._recording.root, ignore_errors=True)
        names = self._surviving_names(rng, losses)
        contents = self._surviving_contents(rng, losses)
        built: dict[int, Path] = {}
        pending = [(ROOT, Path(self._recording.root))]
        while pending:
            inode, path = pending.pop()
            if inode in self._recording.directories:
                path.mkdir()
                pending.extend((below, path / name) for name, below in sorted(names.get(inode, {}).items()))
            elif inode in built:
                os.link(built[inode], path)
            else:
                path.write_bytes(contents.get(inode, b""))
                built[inode] = path

    def _is_synced(self, inode: int, place: int) -> bool:
        return place < max(self._settled, self._synced.get(inode, 0))

    def _surviving_names(self, rng: Rng, losses: Losses) -> Mapping[int, Mapping[str, int]]:
        sure = self._sure_names()
        lost: set[Slot] = set()
        unchanged: set[int] = set()
        names: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for place, operation in enumerate(self._operations):
            if not isinstance(operation, Names):
                continue
            slots = {slot for slot, _ in operation.changes}
            above = {directory for directory, _ in slots} if operation.only_removes else set()
            loss = losses.taken if operation.only_removes else losses.given
            if place not in sure and (rng.random() < loss or slots & lost or above & unchanged):
                lost |= slots
                unchanged |= above
                continue
            for (directory, name), inode in operation.changes:
                if inode is None:
                    names[directory].pop(name, None)
                else:
                    names[directory][name] = inode
        return names

    def _sure_names(self) -> set[int]:
        """Return the places of changes of names that are on the disk: synced, or before a synced one of the name."""
        sure: set[int] = set()
        settled: set[Slot] = set()
        for place in range(len(self._operations) - 1, -1, -1):
            operation = self._operations[place]
            if not isinstance(operation, Names):
                continue
            slots = {slot for slot, _ in operation.changes}
            if slots & settled or any(self._is_synced(directory, place) for directory, _ in slots):
                sure.add(place)
                settled |= slots
        return sure

    def _surviving_contents(self, rng: Rng, losses: Losses) -> Mapping[int, bytes]:
        synced: defaultdict[int, bytearray] = defaultdict(bytearray)
        unsynced: defaultdict[int, list[Write | Resize]] = defaultdict(list)
        for place, operation in enumerate(self._operations):
            if isinstance(operation, Write | Resize):
                if self._is_synced(operation.inode, place):
                    _apply(synced[operation.inode], operation)
                else:
                    unsynced[operation.inode].append(operation)
        contents = {inode: bytes(content) for inode, content in synced.items()}
        for inode, operations in unsynced.items():
            before = contents.get(inode, b"")
            contents[inode] = _mixed(before, operations, rng if rng.random() < losses.data else None)
        return contents


def _mixed(before: bytes, operations: Sequence[Write | Resize], rng: Rng | None) -> bytes:
    """Return what remains of a file whose last operations were not synced; all of it without a source of chance."""
    after = bytearray(before)
    for operation in operations:
        _apply(after, operation)
    if rng is None:
        return bytes(after)
    kind = rng.choice(("none", "beginning", "zeros", "pages"))
    if kind == "none":
        return before
    if kind == "beginning":
        return _beginning(before, operations, rng)
    same = bytes(before[: len(after)]).ljust(len(after), b"\0")
    if kind == "zeros":
        return same
    for start in range(0, len(after), _PAGE_BYTES):
        if rng.random() < 0.5:
            after[start : start + _PAGE_BYTES] = same[start : start + _PAGE_BYTES]
    return bytes(after)


def _beginning(before: bytes, operations: Sequence[Write | Resize], rng: Rng) -> bytes:
    """Return the file after some of the operations, the last write cut anywhere."""
    content = bytearray(before)
    last = rng.randrange(len(operations))
    for operation in operations[:last]:
        _apply(content, operation)
    cut = operations[last]
    if isinstance(cut, Write):
        _apply(content, Write(cut.inode, cut.offset, cut.data[: rng.randrange(len(cut.data) + 1)]))
    return bytes(content)


def _apply(content: bytearray, operation: Write | Resize) -> None:
    if isinstance(operation, Resize):
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
        return
    end = operation.offset + len(operation.data)
    if len(content) < operation.offset:
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : end] = operation.data

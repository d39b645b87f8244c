"""Conditional writes, by kind: which of them won, and which were lost to a rival."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.errors import ObjectExistsError, ObjectNotFoundError
from memwal_core.format.paths import (
    LEASES_DIRECTORY,
    LEDGER_DIRECTORY,
    MANIFEST_SUFFIX,
    MEM_WAL_DIRECTORY,
    RECORD_DIRECTORY,
    TABLE_VERSIONS_DIRECTORY,
    VERSION_HINT_NAME,
    numbered_name,
    version_of_manifest,
)
from memwal_core.format.table_manifest import read_manifest
from memwal_core.storage import ObjectStore
from memwal_core.storage.protocol import ObjectPart
from testkit.faults.faulty_store import Call, FaultyStore

_WRITES = frozenset({"put", "put_if_absent", "put_parts_if_absent", "put_file_if_absent"})
_DOCUMENT_SUFFIX = ".json"


class WriteKind(StrEnum):
    """What is written only if no rival was faster.

    A hint is written unconditionally. It counts as lost if a rival has already made a newer version than it names.
    A commit that changes the MemWAL index counts as a base version, too.
    """

    WAL_ENTRY = "WAL entry"
    REGION_MANIFEST = "region manifest"
    LEASE = "lease"
    LEDGER = "ledger"
    FREEZE = "freeze"
    HINT = "hint"
    BASE_VERSION = "base version"
    MEM_WAL_INDEX = "MemWAL index"

    @property
    def won(self) -> str:
        """The name under which the simulation counts writes that took effect."""
        return f"{self.value} won"

    @property
    def lost(self) -> str:
        """The name under which the simulation counts writes that a rival had come before."""
        return f"{self.value} lost"

    @property
    def rarity(self) -> float:
        """The share of these writes that are worth a rival's turn: every job makes many of some kinds."""
        return _RARITY.get(self, 1.0)


_UNMODELLED = frozenset({WriteKind.REGION_MANIFEST, WriteKind.LEASE, WriteKind.LEDGER})
"""Kinds whose loss no row and no freeze shows: two writers get one epoch, which the WAL notices; two runs have one
lease; what a run did is forgotten."""
_RARITY = {WriteKind.HINT: 0.15, WriteKind.LEDGER: 0.15, WriteKind.LEASE: 0.5, WriteKind.FREEZE: 0.5}


def kind_of(call: Call) -> WriteKind | None:
    """Return what a call to the store writes; None for any other call.

    The path alone decides: a write that has lost its condition is as much a contest as one that has it.
    """
    if call.operation not in _WRITES:
        return None
    if call.path.endswith(f"/{VERSION_HINT_NAME}"):
        return WriteKind.HINT
    if call.path.startswith(f"{TABLE_VERSIONS_DIRECTORY}/"):
        return WriteKind.BASE_VERSION
    for directory, kind in _REGISTERS.items():
        if call.path.startswith(f"{directory}/"):
            return kind
    if call.path.startswith(f"{MEM_WAL_DIRECTORY}/"):
        return _IN_REGIONS.get(call.path.split("/")[-2])
    return None


_REGISTERS = {
    LEASES_DIRECTORY: WriteKind.LEASE,
    LEDGER_DIRECTORY: WriteKind.LEDGER,
    RECORD_DIRECTORY: WriteKind.FREEZE,
}
_IN_REGIONS = {"wal": WriteKind.WAL_ENTRY, "manifest": WriteKind.REGION_MANIFEST}


class Contests:
    """Counts conditional writes, and remembers who makes them where.

    Args:
        store: Never fails, and is not watched.
        seen: Where to count.
        actor: Returns the name of whoever acts now; empty if it is the simulation itself.

    Attributes:
        replaced: Versions of region manifests, leases and the ledger that a rival wrote, and that were written over.
    """

    def __init__(self, store: ObjectStore, seen: Counter[str], actor: Callable[[], str]) -> None:
        """Begin with nobody known."""
        self._store = store
        self._manifests = ManifestFiles(store)
        self._seen = seen
        self._actor = actor
        self.replaced: list[str] = []
        self._writers: defaultdict[str, set[str]] = defaultdict(set)

    def rivals(self, path: str) -> frozenset[str]:
        """Return who has written to the directory of a path before, by name."""
        return frozenset(self._writers[_directory(path)])

    def joins(self, directory: str) -> None:
        """Note that the actor writes to a directory past the store."""
        self._writers[directory].add(self._actor())

    @contextmanager
    def watched(self, call: Call, content: bytes = b"") -> Iterator[None]:
        """Count what becomes of one write, around its effect; writes of no kind pass."""
        kind = kind_of(call)
        if kind is None or not self._actor():
            yield
            return
        self.joins(_directory(call.path))
        counted = [kind]
        if kind is WriteKind.BASE_VERSION and self.changes_index(call.path, content):
            counted.append(WriteKind.MEM_WAL_INDEX)
        is_late = kind is WriteKind.HINT and self._is_overtaken(call.path, content)
        was_there = kind in _UNMODELLED and self._holds_other(call.path, content)
        try:
            yield
        except ObjectExistsError:
            self._seen.update(each.lost for each in counted)
            raise
        if was_there:
            self.replaced.append(call.path)
        self._seen.update(each.lost if is_late else each.won for each in counted)

    def _is_overtaken(self, path: str, content: bytes) -> bool:
        following = int(json.loads(content)["version"]) + 1
        suffix = MANIFEST_SUFFIX if path.split("/")[-2] == "manifest" else _DOCUMENT_SUFFIX
        return self._store.head(f"{_directory(path)}/{numbered_name(following, suffix)}") is not None

    def _holds_other(self, path: str, content: bytes) -> bool:
        return self._store.head(path) is not None and self._store.get(path) != content

    def changes_index(self, path: str, content: bytes) -> bool:
        """Return whether a version of the base table has another MemWAL index than the one before it."""
        version = version_of_manifest(path.rpartition("/")[2])
        if version is None:
            return False
        made = read_manifest(len(content), lambda start, length: content[start : start + length])
        try:
            return made.mem_wal != self._manifests.read(version - 1).mem_wal
        except ObjectNotFoundError:
            return False


class ContestedStore(FaultyStore):
    """Any store whose conditional writes are counted as they take effect or not.

    Args:
        inner: The store that does the work.
        contests: Counts.
    """

    def __init__(self, inner: ObjectStore, contests: Contests) -> None:
        """Keep the parts."""
        super().__init__(inner)
        self._contests = contests

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing what is there."""
        with self._contests.watched(Call("put", path), data):
            super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if nothing is there."""
        with self._contests.watched(Call("put_if_absent", path), data):
            super().put_if_absent(path, data)

    def put_parts_if_absent(self, path: str, parts: Sequence[ObjectPart]) -> None:
        """Write several pieces as one object only if nothing is there."""
        with self._contests.watched(Call("put_parts_if_absent", path)):
            super().put_parts_if_absent(path, parts)

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Publish a local file only if nothing is there."""
        with self._contests.watched(Call("put_file_if_absent", path)):
            super().put_file_if_absent(path, source)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def in_every_hundred(seen: Mapping[str, int], seeds: int) -> dict[WriteKind, int]:
    """Return how many writes of each kind were lost to a rival in a hundred seeds, rounded down."""
    return {kind: seen.get(kind.lost, 0) * 100 // seeds for kind in WriteKind}

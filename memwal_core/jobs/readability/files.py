"""Whether files can be read: those of flushed MemTables that wait for a merge, and those of the base table.

Names, sizes and footers by default; every row on demand. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import lance

from memwal_core.base_table import BaseTable, TableState, decoding, translated
from memwal_core.errors import CorruptionError, MemwalError, ObjectNotFoundError
from memwal_core.flushed.read import MergeTarget, SchemaMismatch, map_columns, open_generation
from memwal_core.flushed.read.contents import check_contents
from memwal_core.flushed.read.diagnosis import diagnose_generation
from memwal_core.flushed.read.opening import wal_of
from memwal_core.format.footer import FILE_FOOTER_BYTES, read_file_footer
from memwal_core.format.malformed import MalformedError
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.context import Progress
from memwal_core.native.decoding import decode_fragment_in_child
from memwal_core.region import FlushedGeneration
from memwal_core.storage import open_store
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.text import show_count
from memwal_core.wal import apparent_damage_of_entry, damage_of_entry

_AT_ONCE = 4
"""WAL entries of a region in memory at the same time."""

_FEW_FILES = 16
_LISTED_FOR_ONE = 64
"""Of more files a listing tells the sizes, unless it is longer than so many objects for each: then it would cost more
than to ask for each file."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file of the base table that cannot be read.

    Attributes:
        path: Relative to the table; the whole address if it lies elsewhere.
    """

    path: str
    cause: str


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The files of the base table's newest version.

    Attributes:
        rows_read: Rows that were read; 0 unless contents were asked for.
    """

    files: int = 0
    rows_read: int = 0
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Readability:
    """What is known of one unmerged flushed MemTable.

    Attributes:
        damage: File -> what is wrong with it.
        unmergeable: Why a merge cannot take its columns; empty if it can.
        recorded_address: Where it says that its WAL entries are, if that is not where they are; empty otherwise.
    """

    damage: tuple[FileProblem, ...] = ()
    unmergeable: str = ""
    recorded_address: str = ""


@dataclass(frozen=True, slots=True)
class RegionProof:
    """Proves that flushed MemTables of one table can be read and merged, and that WAL entries can be replayed.

    Attributes:
        target: What merged rows must look like; None if the base table says nothing of that.
    """

    store: ObjectStore
    target: MergeTarget | None
    contents: bool

    def examine(self, region_id: RegionId, recorded: FlushedGeneration) -> Readability:
        """Look at one flushed MemTable."""
        uri = self.store.uri_of(generation_path(region_id, recorded.path))
        try:
            dataset = open_generation(uri, self.store.storage_options)
            with decoding(uri):
                fields, fragments = dataset.lance_schema.fields(), dataset.get_fragments()
            damage = _damage_of(self.store, _data_files(dataset, generation_path(region_id, recorded.path)), 1)
            if self.contents and not damage:
                damage = self._read(region_id, recorded)
        except MemwalError:
            found = diagnose_generation(self.store, region_id, recorded.path)
            if not found:
                raise
            return Readability(tuple(FileProblem(each.path, each.cause) for each in found))
        if not fragments:
            # Given up by a repair; or its manifest is all zeros, which Lance opens as a table without anything.
            return Readability(self._read(region_id, recorded))
        mapping = map_columns(self.target, fields, dataset.schema) if self.target is not None else None
        unmergeable = mapping.reason if isinstance(mapping, SchemaMismatch) else ""
        return Readability(damage, unmergeable, _elsewhere(uri, self.store))

    def damaged_entries(self, region_id: RegionId, suffix: str, entries: Sequence[int]) -> dict[int, str]:
        """Return WAL entry -> what is wrong with it, of those that exist.

        Without ``contents`` their ends are looked at, and of Arrow streams whether they hold anything.
        """
        look = partial(
            damage_of_entry if self.contents else apparent_damage_of_entry, self.store, region_id, suffix=suffix
        )
        causes = map_concurrently(look, entries, _AT_ONCE)
        return {wal_id: cause for wal_id, cause in zip(entries, causes, strict=True) if cause}

    def _read(self, region_id: RegionId, recorded: FlushedGeneration) -> tuple[FileProblem, ...]:
        found = diagnose_generation(self.store, region_id, recorded.path)
        if found:
            return tuple(FileProblem(each.path, each.cause) for each in found)
        try:
            check_contents(self.store, region_id, recorded)
        except CorruptionError as error:
            return (FileProblem(generation_path(region_id, recorded.path), error.what),)
        return ()


def examine_base_files(
    table: BaseTable, state: TableState, concurrency: int, progress: Progress, *, contents: bool
) -> BaseFiles:
    """Look at every data and deletion file of a version.

    Args:
        table: The base table.
        state: The version.
        concurrency: Requests under way at once.
        progress: Is told how many files were looked at.
        contents: Also read every row, fragment by fragment.
    """
    dataset = table.dataset(state.version)
    files = _data_files(dataset, "")
    problems = _damage_of(table.store, files, concurrency, progress)
    if not contents:
        return BaseFiles(len(files), 0, problems)
    known = {each.path for each in problems}
    rows, unread = _read_fragments(table.store, dataset, known, progress)
    return BaseFiles(len(files), rows, (*problems, *unread))


@dataclass(frozen=True, slots=True)
class _File:
    """A data or deletion file: its path, its size if recorded, and the address of the base it lies in if any."""

    path: str
    size_bytes: int | None
    base: str
    has_footer: bool

    @property
    def shown(self) -> str:
        return f"{self.base}/{self.path}" if self.base else self.path


def _data_files(dataset: lance.LanceDataset, root: str) -> list[_File]:
    """List the files that a version names."""
    prefix = f"{root}/" if root else ""
    with translated("list the files of a table", dataset.uri, version=dataset.version):
        bases = dict(dataset.base_paths())
        found = []
        for fragment in dataset.get_fragments():
            metadata = fragment.metadata
            for each in metadata.files:
                if each.base_id is None:
                    found.append(_File(f"{prefix}data/{each.path}", each.file_size_bytes, "", True))
                    continue
                base = bases[each.base_id]
                inner = f"data/{each.path}" if base.is_dataset_root else each.path
                found.append(_File(inner, each.file_size_bytes, str(base.path).rstrip("/"), True))
            deletions = metadata.deletion_file
            if deletions is not None and getattr(deletions, "base_id", None) is None:
                found.append(_File(f"{prefix}{deletions.path(metadata.id)}", None, "", False))
    return found


def _damage_of(
    store: ObjectStore, files: Sequence[_File], concurrency: int, progress: Progress | None = None
) -> tuple[FileProblem, ...]:
    done = 0
    others = {
        base: open_store(base, storage_options=store.storage_options)
        for base in {each.base for each in files if each.base}
    }

    sizes = _listed_sizes(store, files)

    def look(file: _File) -> FileProblem | None:
        nonlocal done
        cause = _cause(others[file.base] if file.base else store, file, None if file.base else sizes.get(file.path))
        done += 1
        if progress is not None:
            progress("files", done, len(files))
        return FileProblem(file.shown, cause) if cause else None

    return tuple(each for each in map_concurrently(look, files, concurrency) if each is not None)


def _listed_sizes(store: ObjectStore, files: Sequence[_File]) -> Mapping[str, int]:
    """Return the sizes of the table's own files as listings show them; of few files, or beyond a bound, none."""
    own = {each.path for each in files if not each.base}
    if len(own) <= _FEW_FILES:
        return {}
    listed = (
        islice(store.list_objects(directory), _LISTED_FOR_ONE * len(own))
        for directory in sorted({path.rpartition("/")[0] for path in own})
    )
    return {info.path: info.size_bytes for objects in listed for info in objects if info.path in own}


def _cause(store: ObjectStore, file: _File, listed_bytes: int | None) -> str:
    size_bytes = listed_bytes
    if size_bytes is None:
        info = store.head(file.path)
        if info is None:
            return "it is missing"
        size_bytes = info.size_bytes
    if file.size_bytes and size_bytes != file.size_bytes:
        return f"it has {size_bytes} bytes, and {file.size_bytes} were written"
    if not file.has_footer:
        return "it is empty" if not size_bytes else ""
    start = max(0, size_bytes - FILE_FOOTER_BYTES)
    try:
        read_file_footer(store.get_range(file.path, start, FILE_FOOTER_BYTES), size_bytes)
    except ObjectNotFoundError:
        return "it is missing"
    except MalformedError as error:
        return str(error)
    return ""


def _read_fragments(
    store: ObjectStore, dataset: lance.LanceDataset, known: set[str], progress: Progress
) -> tuple[int, tuple[FileProblem, ...]]:
    """Read every row of the fragments whose files look sound, in a process that may die of it."""
    rows, problems = 0, []
    fragments = dataset.get_fragments()
    for number, fragment in enumerate(fragments):
        paths = [f"data/{each.path}" for each in fragment.metadata.files]
        if known.isdisjoint(paths):
            try:
                found, expected = decode_fragment_in_child(
                    dataset.uri, store.storage_options, dataset.version, fragment.fragment_id
                )
            except CorruptionError as error:
                problems.append(FileProblem(", ".join(paths), f"Lance cannot decode it: {error.facts['reason']}"))
            else:
                rows += found
                if found != expected:
                    problems.append(
                        FileProblem(", ".join(paths), f"read: {show_count(found, 'row')}, and it has {expected}")
                    )
        progress("fragments read", number + 1, len(fragments))
    return rows, tuple(problems)


def _elsewhere(uri: str, store: ObjectStore) -> str:
    """Return the address under which a flushed MemTable knows its WAL entries, if they are not there."""
    with translated("open a flushed MemTable", uri):
        recorded = lance.dataset(uri, storage_options=dict(store.storage_options) or None).base_paths().values()
    return next((str(each.path) for each in recorded if each.path != wal_of(uri)), "")

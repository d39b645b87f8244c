"""What is wrong with a file that could not be read: judged by the file, not by the call that failed.

Lance reports a zeroed manifest as a table without columns, and a truncated file as a store that did not answer. So
after a failure the files themselves are examined: listing, sizes, footers, checksums, and last whether Lance can decode
them, which it does in a process that may die of it. Jobs, readers, doctor and repair share this module. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import lance
import pyarrow as pa
from lance.fragment import DeletionFile

from memwal_core.base_table import decoding, require_sound
from memwal_core.errors import CorruptionError, DamagedError, InvalidRequestError
from memwal_core.flushed.read.opening import require_data
from memwal_core.format.checksum import ChecksumError, verify_checksum
from memwal_core.format.deletion_vector import count_deleted
from memwal_core.format.footer import read_file_footer
from memwal_core.format.lance_file.schema import schema_range
from memwal_core.format.malformed import MalformedError, apparent_damage
from memwal_core.format.paths import (
    TABLE_MANIFEST_SUFFIX,
    TABLE_VERSIONS_DIRECTORY,
    generation_path,
    parse_table_manifest_name,
    region_directory,
)
from memwal_core.format.table_manifest import read_manifest
from memwal_core.ids import RegionId
from memwal_core.native.decoding import decode_file_in_child
from memwal_core.storage.limits import MAX_TABLE_MANIFEST_BYTES
from memwal_core.storage.protocol import ObjectInfo, ObjectStore
from memwal_core.text import show_count

_MOST_CAUSE = 300


class FileKind(StrEnum):
    """What a damaged file is."""

    DIRECTORY = "directory"
    MANIFEST = "manifest"
    DATA = "data file"
    DELETIONS = "deletion file"


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that cannot be trusted.

    Attributes:
        path: Where, relative to the table's root; the whole address if it lies elsewhere.
    """

    kind: FileKind
    path: str
    cause: str

    def __str__(self) -> str:
        """Return path and cause."""
        return f"{self.path}: {self.cause}"

    def error(self, region_id: RegionId, **facts: object) -> DamagedError:
        """Return the error of a region that has this damage."""
        return DamagedError.of(region_id, self.path, self.cause, **facts)


def diagnose_generation(store: ObjectStore, region_id: RegionId, directory: str) -> tuple[Damage, ...]:
    """Find what is wrong with a flushed MemTable.

    Args:
        store: The table's store.
        region_id: The region.
        directory: The name under which the region manifest records the flushed MemTable.

    Returns:
        The damage of its manifest, data files and deletion files; empty if all of them can be read. Sidecars do not
        count: readers do without them.
    """
    root = generation_path(region_id, directory)
    try:
        store.require_files([root])
    except CorruptionError as error:
        return (Damage(FileKind.DIRECTORY, str(error.facts["path"]), f"it is {error.facts['found']}"),)
    listed = {info.path.removeprefix(f"{root}/"): info for info in store.list_objects(root)}
    if not listed:
        return (_vanished(store, region_id, root),)
    manifest = _newest_manifest(listed)
    if manifest is None:
        return (
            Damage(
                FileKind.MANIFEST, f"{root}/{TABLE_VERSIONS_DIRECTORY}", "no manifest of the flushed MemTable is left"
            ),
        )
    cause = _cause_of_manifest(store, manifest)
    if cause:
        return (Damage(FileKind.MANIFEST, manifest.path, cause),)
    try:
        with decoding(store.uri_of(root)):
            dataset = lance.dataset(store.uri_of(root), storage_options=dict(store.storage_options) or None)
            require_sound(dataset)
            require_data(dataset)
            fragments = dataset.get_fragments()
            bases = [base.path for base in dataset.base_paths().values()]
    except CorruptionError as error:
        return (Damage(FileKind.MANIFEST, manifest.path, f"Lance cannot decode it: {error.facts['reason']}"),)
    strange = [base for base in bases if base.split("/")[-2:] != [str(region_id), "wal"]]
    if strange:
        return (Damage(FileKind.MANIFEST, manifest.path, f"it refers to files outside of its region, in {strange[0]}"),)
    look = _Look(store, root)
    return tuple(damage for fragment in fragments for damage in look.fragment(fragment))


def _vanished(store: ObjectStore, region_id: RegionId, root: str) -> Damage:
    region = region_directory(region_id)
    if next(iter(store.list_objects(region)), None) is None:
        return Damage(FileKind.DIRECTORY, region, "the region's directory is gone")
    return Damage(FileKind.DIRECTORY, root, "the directory is gone")


def _newest_manifest(listed: Mapping[str, ObjectInfo]) -> ObjectInfo | None:
    found = {}
    for relative, info in listed.items():
        directory, _, name = relative.rpartition("/")
        if directory == TABLE_VERSIONS_DIRECTORY and name.endswith(TABLE_MANIFEST_SUFFIX):
            try:
                found[parse_table_manifest_name(name)] = info
            except InvalidRequestError:
                continue  # A manifest named in another way: Lance would look at it, and so does ``lance.dataset``.
    return found[max(found)] if found else None


def _cause_of_manifest(store: ObjectStore, info: ObjectInfo) -> str:
    data = store.get(info.path, MAX_TABLE_MANIFEST_BYTES)
    cause = apparent_damage(data)
    if cause:
        return cause
    try:
        facts = read_manifest(len(data), lambda start, length: data[start : start + length])
    except CorruptionError as error:
        return f"its {len(data)} bytes are not a table manifest: {error.facts.get('problem', error.what)}"
    named = parse_table_manifest_name(info.path.rpartition("/")[2])
    return "" if facts.version == named else f"it describes version {facts.version}, and its name says {named}"


@dataclass(frozen=True, slots=True)
class _Look:
    """Examines the files of one flushed MemTable."""

    store: ObjectStore
    root: str

    def fragment(self, fragment: lance.LanceFragment) -> Iterator[Damage]:
        for file in fragment.metadata.files:
            path = self._place(file.path, file.base_id)
            cause = _cause_of_data(self.store, path, file.file_size_bytes, fragment.physical_rows)
            if cause:
                yield Damage(FileKind.DATA, path, cause)
        deletions = fragment.metadata.deletion_file
        if deletions is not None:
            path = f"{self.root}/{deletions.path(fragment.fragment_id)}"
            cause = _cause_of_deletions(self.store, path, deletions)
            if cause:
                yield Damage(FileKind.DELETIONS, path, cause)

    def _place(self, name: str, base_id: int | None) -> str:
        """Return the path of a data file: in its own directory, or in the WAL of its own region."""
        return f"{self.root}/data/{name}" if base_id is None else f"{self.root.rpartition('/')[0]}/wal/{name}"


def _cause_of_data(store: ObjectStore, path: str, recorded_bytes: int | None, rows: int) -> str:
    info = store.head(path)
    if info is None:
        return "it is missing"
    data = store.get(path)
    cause = apparent_damage(data)
    if cause:
        return cause
    if recorded_bytes and len(data) != recorded_bytes:
        return f"it has another size than when it was flushed: {len(data)} bytes instead of {recorded_bytes}"
    try:
        read_file_footer(data, len(data))
        verify_checksum(data, schema_range)
    except (MalformedError, ChecksumError) as error:
        return str(error)
    return _cause_of_decoding(store, path, rows)


def _cause_of_decoding(store: ObjectStore, path: str, rows: int) -> str:
    try:
        found = decode_file_in_child(store.uri_of(path), store.storage_options)
    except CorruptionError as error:
        return f"Lance cannot decode it: {error.facts['reason']}"
    return "" if found == rows else f"it has {show_count(found, 'row')}, and the flushed MemTable was made of {rows}"


def _cause_of_deletions(store: ObjectStore, path: str, deletions: DeletionFile) -> str:
    if store.head(path) is None:
        return "it is missing"
    data = store.get(path)
    cause = apparent_damage(data)
    if cause:
        return cause
    try:
        hidden = _listed_rows(data) if deletions.file_type == "array" else count_deleted(data)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"its {len(data)} bytes do not say which rows are deleted: {error}"[:_MOST_CAUSE]
    recorded = deletions.num_deleted_rows
    return "" if hidden == recorded else f"it hides {show_count(hidden, 'row')}; recorded are {recorded}"


def _listed_rows(data: bytes) -> int:
    with pa.ipc.open_file(data) as reader:
        table = reader.read_all()
        table.validate(full=True)
        return int(table.num_rows)

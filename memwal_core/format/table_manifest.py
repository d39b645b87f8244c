"""The bytes of a table manifest, as far as the MemWAL index is concerned.

A manifest file is framed sections in any order and a footer that names the ``Manifest`` message. That message
names the index section, if there is one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from google.protobuf.message import Message

from memwal_core.errors import CorruptionError
from memwal_core.format.bounded import BoundedFile, ReadRange
from memwal_core.format.footer import read_manifest_footer
from memwal_core.format.framing import framed, read_framed
from memwal_core.format.malformed import MalformedError
from memwal_core.format.memwal_index import MEM_WAL_DETAILS_TYPE_URL, MEM_WAL_INDEX_NAME
from memwal_core.format.messages import parse
from memwal_core.format.paths import DATA_DIRECTORY, DELETIONS_DIRECTORY, INDEX_DIRECTORY, TRANSACTIONS_DIRECTORY
from memwal_core.format.pb import table_manifest_pb2 as pb

TAIL_BYTES = 64 * 1024
"""Read from the end first; most manifests are smaller and need no second request."""

_NO_FRAGMENTS = bytes.fromhex("3a30000000000000")
"""An empty Roaring bitmap."""
_DELETION_SUFFIXES = {0: "arrow", 1: "bin"}
_REMEDY = "stop all jobs of this table; restore the manifest from a copy"


@dataclass(frozen=True, slots=True)
class MemWalEntry:
    """The MemWAL index as a table manifest lists it.

    Attributes:
        index_id: Names the directory of the external snapshot. Lance gives the index a new id in
            each of its commits that touch merge progress or catch-up.
        covers_fragments: Whether Lance counts fragments as covered by it, which none is. In tables with stable row ids,
            an upsert of nothing but new keys adds the fragment that it makes; Lance then refuses to compact it with
            others. Every commit of ours takes that back.
    """

    index_id: uuid.UUID
    payload: bytes = field(repr=False)
    covers_fragments: bool = False


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """What is read from one table manifest.

    Attributes:
        timestamp: When the version was made, timezone UTC.
        mem_wal: The MemWAL index; None if the version has none.
        has_origin: Whether files of it may lie in another table, of which it is a shallow clone.
        begins_clone: Whether it is the first version of a clone, shallow or deep.
        indexes: Names of its indexes in the order in which it lists their segments, a name once for each.
    """

    version: int
    timestamp: datetime
    mem_wal: MemWalEntry | None
    has_origin: bool = False
    begins_clone: bool = False
    indexes: tuple[str, ...] = ()


def read_manifest(size_bytes: int, read: ReadRange) -> ManifestFacts:
    """Read what concerns the MemWAL index from a manifest file.

    Raises:
        CorruptionError: The file is not a table manifest, or lists two MemWAL indexes.
    """
    with _intact():
        file = BoundedFile(size_bytes, read, TAIL_BYTES)
        manifest = parse(pb.Manifest(), read_framed(file, read_manifest_footer(file.tail).manifest))
        listed = _index_section(file, manifest)
        return ManifestFacts(
            version=manifest.version,
            timestamp=manifest.timestamp.ToDatetime(tzinfo=UTC),
            mem_wal=_entry_of(listed),
            has_origin=any(base.is_dataset_root for base in manifest.base_paths),
            # Other versions are made of an earlier one; a clone's first has the number of the one that it is made of.
            begins_clone=manifest.transaction_file.partition("-")[0] == str(manifest.version),
            indexes=tuple(index.name for index in listed.indices),
        )


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """What one version of a table consists of, relative to the table; what lies in other bases is left out.

    Attributes:
        files: Data files, deletion vectors, row id sequences, the transaction.
        directories: Directories of indexes. Some kinds of index have none.
    """

    files: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()


def read_named_files(data: bytes) -> NamedFiles:
    """Return the files that a whole manifest file names; ``CorruptionError`` if it is not a table manifest."""
    with _intact():
        file = BoundedFile(len(data), lambda start, length: data[start : start + length], len(data))
        message = read_framed(file, read_manifest_footer(data).manifest)
        indexes = _index_section(file, parse(pb.Manifest(), message)).indices
        version = parse(pb.VersionFiles(), message)
        directories = {
            f"{INDEX_DIRECTORY}/{uuid.UUID(bytes=index.uuid.uuid)}"
            for index in indexes
            if not index.HasField("base_id")
        }
        files = {path for fragment in version.fragments for path in _fragment_files(fragment)}
    if version.transaction_file:
        files.add(f"{TRANSACTIONS_DIRECTORY}/{version.transaction_file}")
    return NamedFiles(frozenset(files), frozenset(directories))


def _fragment_files(fragment: pb.FragmentFiles) -> Iterator[str]:
    for each in (*fragment.files, *(overlay.data_file for overlay in fragment.overlays)):
        if not each.HasField("base_id"):
            yield f"{DATA_DIRECTORY}/{each.path}"
    deleted = fragment.deletion_file
    if fragment.HasField("deletion_file") and not deleted.HasField("base_id"):
        suffix = _DELETION_SUFFIXES.get(deleted.file_type)
        if suffix is None:
            raise MalformedError(f"a deletion vector has the unknown type {deleted.file_type}")
        yield f"{DELETIONS_DIRECTORY}/{fragment.id}-{deleted.read_version}-{deleted.id}.{suffix}"
    for external in ("external_row_ids", "external_last_updated_at_versions", "external_created_at_versions"):
        if fragment.HasField(external):
            yield getattr(fragment, external).path


def replace_mem_wal_entry(staged: bytes, change: Callable[[MemWalEntry], MemWalEntry]) -> bytes:
    """Return a manifest file whose MemWAL index is another, all else being equal.

    Every byte before the old ``Manifest`` message stays where it is, so the offsets of other
    sections remain right; the new index section and manifest follow.

    Args:
        staged: A whole manifest file.
        change: Gives the new entry for the present one; an equal one leaves the file as it is.

    Raises:
        CorruptionError: The file is not a table manifest, or does not have exactly one MemWAL index.
    """
    with _intact():
        file = BoundedFile(len(staged), lambda start, length: staged[start : start + length], len(staged))
        footer = read_manifest_footer(staged)
        manifest = parse(pb.Manifest(), read_framed(file, footer.manifest))
        listed = _index_section(file, manifest)
        entry = _entry_of(listed)
    if entry is None:
        raise CorruptionError("the version about to be made has lost the MemWAL index", remedy="report this")
    wanted = change(entry)
    if wanted == entry:
        return staged
    for index in listed.indices:
        if index.name == MEM_WAL_INDEX_NAME:
            index.uuid.uuid = wanted.index_id.bytes
            index.index_details.value = wanted.payload
            if entry.covers_fragments and not wanted.covers_fragments:
                index.fragment_bitmap = _NO_FRAGMENTS
    manifest.index_section = footer.manifest
    section = _section(listed)
    end = footer._replace(manifest=footer.manifest + len(section)).pack()
    return staged[: footer.manifest] + section + _section(manifest) + end


def with_base_path(message: bytes, address: str) -> bytes:
    """Return a ``Manifest`` message whose base paths have another address.

    Args:
        message: The message alone, as ``LanceDataset`` serialises it.
        address: Of all its base paths.

    Raises:
        CorruptionError: The bytes are not such a message.
    """
    with _intact():
        manifest = parse(pb.Manifest(), message)
        for base in manifest.base_paths:
            base.path = address
        return manifest.SerializeToString()


def next_with_base_path(stored: bytes, address: str) -> bytes | None:
    """Return the file of the version after a stored one, equal but for the address of its base paths.

    Everything before the ``Manifest`` message stays where it is, so that the offsets in it remain right.

    Returns:
        None if all base paths have this address.

    Raises:
        CorruptionError: The file is not a table manifest.
    """
    with _intact():
        file = BoundedFile(len(stored), lambda start, length: stored[start : start + length], len(stored))
        footer = read_manifest_footer(stored)
        manifest = parse(pb.Manifest(), read_framed(file, footer.manifest))
        if all(base.path == address for base in manifest.base_paths):
            return None
        manifest.version += 1
        for base in manifest.base_paths:
            base.path = address
        return stored[: footer.manifest] + _section(manifest) + footer.pack()


@contextmanager
def _intact() -> Iterator[None]:
    """Refuse a file whose bytes are not those of a table manifest.

    Raises:
        CorruptionError: They are not.
    """
    try:
        yield
    except (ValueError, OverflowError) as error:  # Protobuf and Python refuse impossible times with either.
        raise CorruptionError("a table manifest cannot be read", remedy=_REMEDY, problem=str(error)) from error


def _section(message: Message) -> bytes:
    return framed(message.SerializeToString())


def _index_section(file: BoundedFile, manifest: pb.Manifest) -> pb.IndexSection:
    if not manifest.HasField("index_section"):
        return pb.IndexSection()
    listed = parse(pb.IndexSection(), read_framed(file, manifest.index_section))
    if not listed.indices:
        # Lance writes no section for a version without indexes: these are bytes that never reached the disk.
        raise MalformedError("the index section lists no index")
    return listed


def _entry_of(listed: pb.IndexSection) -> MemWalEntry | None:
    found = [index for index in listed.indices if index.name == MEM_WAL_INDEX_NAME]
    if not found:
        return None
    if len(found) > 1 or not found[0].index_details.type_url.endswith(MEM_WAL_DETAILS_TYPE_URL.rpartition("/")[2]):
        raise CorruptionError(
            "the table does not have exactly one MemWAL index of the known kind",
            remedy="stop all jobs of this table; restore a version before the second index appeared",
            indexes=len(found),
            type_urls=[index.index_details.type_url for index in found],
        )
    covers_fragments = found[0].fragment_bitmap not in (b"", _NO_FRAGMENTS)
    return MemWalEntry(uuid.UUID(bytes=found[0].uuid.uuid), found[0].index_details.value, covers_fragments)

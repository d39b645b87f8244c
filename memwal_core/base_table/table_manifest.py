"""The bytes of a table manifest, as far as the MemWAL index is concerned.

A manifest file is sections in any order, each a u32 length and a message, then a footer of 16
bytes: u64 offset of the ``Manifest`` message, two u16 version numbers, ``LANC``. Numbers are
little-endian. The manifest names the offset of the index section, if it has one.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from memwal_core.errors import CorruptionError
from memwal_core.index import MEM_WAL_DETAILS_TYPE_URL, MEM_WAL_INDEX_NAME
from memwal_core.pb import table_manifest_pb2 as pb

MAGIC = b"LANC"
TAIL_BYTES = 64 * 1024
"""Read from the end first; most manifests are smaller and need no second request."""

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")

M = TypeVar("M", bound=Message)
ReadRange = Callable[[int, int], bytes]
"""Reads ``length`` bytes from ``start`` of one manifest file."""


@dataclass(frozen=True, slots=True)
class MemWalEntry:
    """The MemWAL index as a table manifest lists it.

    Attributes:
        index_id: Names the directory of the external snapshot. Lance gives the index a new id in
            each of its commits that touch merge progress or catch-up.
        payload: The index details as stored.
    """

    index_id: uuid.UUID
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """What this package reads from one table manifest.

    Attributes:
        version: Table version.
        timestamp: When the version was made, timezone UTC.
        mem_wal: The MemWAL index; None if the version has none.
    """

    version: int
    timestamp: datetime
    mem_wal: MemWalEntry | None


class _Sections:
    """Sections of one file, read in as few requests as its size allows."""

    def __init__(self, size_bytes: int, read: ReadRange) -> None:
        self._size = size_bytes
        self._read = read
        self._start = max(0, size_bytes - TAIL_BYTES)
        self._tail = read(self._start, size_bytes - self._start)

    def bytes_at(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0 or start + length > self._size:
            raise CorruptionError(
                "a table manifest points outside of itself",
                remedy="stop all jobs of this table; restore the manifest from a copy",
                offset=start,
                length=length,
                size_bytes=self._size,
            )
        if start >= self._start:
            return self._tail[start - self._start : start - self._start + length]
        return self._read(start, length)

    def footer(self) -> tuple[int, int, int]:
        found = self.bytes_at(self._size - _FOOTER.size, _FOOTER.size)
        offset, major, minor, magic = _FOOTER.unpack(found)
        if magic != MAGIC:
            raise CorruptionError(
                "a table manifest does not end as one",
                remedy="stop all jobs of this table; restore the manifest from a copy",
                expected=MAGIC,
                found=magic,
            )
        return offset, major, minor

    def message(self, start: int, message: M) -> M:
        (length,) = _LENGTH.unpack(self.bytes_at(start, _LENGTH.size))
        try:
            message.ParseFromString(self.bytes_at(start + _LENGTH.size, length))
        except DecodeError as error:
            raise CorruptionError(
                "a section of a table manifest cannot be read",
                remedy="stop all jobs of this table; restore the manifest from a copy",
                section=type(message).__name__,
                offset=start,
            ) from error
        return message


def read_manifest(size_bytes: int, read: ReadRange) -> ManifestFacts:
    """Read what concerns the MemWAL index from a manifest file.

    Args:
        size_bytes: Length of the file.
        read: Reads a part of it.

    Raises:
        CorruptionError: The file is no table manifest, or lists two MemWAL indexes.
    """
    sections = _Sections(size_bytes, read)
    manifest = sections.message(sections.footer()[0], pb.Manifest())
    return ManifestFacts(
        version=manifest.version,
        timestamp=manifest.timestamp.ToDatetime(tzinfo=UTC),
        mem_wal=_entry_of(_index_section(sections, manifest)),
    )


def replace_mem_wal_entry(staged: bytes, change: Callable[[MemWalEntry], MemWalEntry]) -> bytes:
    """Return a manifest file whose MemWAL index is another, all else being equal.

    Every byte before the old ``Manifest`` message stays where it is, so the offsets of other
    sections remain right; the new index section and manifest follow.

    Args:
        staged: A whole manifest file.
        change: Gives the new entry for the present one; an equal one leaves the file as it is.

    Raises:
        CorruptionError: The file is no table manifest, or has not exactly one MemWAL index.
    """
    sections = _Sections(len(staged), lambda start, length: staged[start : start + length])
    offset, major, minor = sections.footer()
    manifest = sections.message(offset, pb.Manifest())
    listed = _index_section(sections, manifest)
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
    manifest.index_section = offset
    section = _section(listed)
    return staged[:offset] + section + _section(manifest) + _FOOTER.pack(offset + len(section), major, minor, MAGIC)


def _section(message: Message) -> bytes:
    data = message.SerializeToString()
    return _LENGTH.pack(len(data)) + data


def _index_section(sections: _Sections, manifest: pb.Manifest) -> pb.IndexSection:
    if not manifest.HasField("index_section"):
        return pb.IndexSection()
    return sections.message(manifest.index_section, pb.IndexSection())


def _entry_of(listed: pb.IndexSection) -> MemWalEntry | None:
    found = [index for index in listed.indices if index.name == MEM_WAL_INDEX_NAME]
    if not found:
        return None
    if len(found) > 1 or not found[0].index_details.type_url.endswith(MEM_WAL_DETAILS_TYPE_URL.rpartition("/")[2]):
        raise CorruptionError(
            "the table has not exactly one MemWAL index of the known kind",
            remedy="stop all jobs of this table; restore a version before the second index appeared",
            indexes=len(found),
            type_urls=[index.index_details.type_url for index in found],
        )
    return MemWalEntry(uuid.UUID(bytes=found[0].uuid.uuid), found[0].index_details.value)

"""The byte form of a region manifest: protobuf, unknown fields kept, guarded by a checksum."""

from __future__ import annotations

import uuid
from types import MappingProxyType

import xxhash

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.malformed import MalformedError
from memwal_core.format.messages import parse, unknown_fields
from memwal_core.format.paths import require_generation_path
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest, RegionStatus
from memwal_core.ids import RegionId

_REMEDY = "stop all jobs of this table and follow docs/runbooks/corrupt-region-manifest.md"
_UUID_BYTES = 16


def encode_manifest(manifest: RegionManifest) -> bytes:
    """Return the content of a manifest file.

    The checksum precedes the bytes that it covers, so that truncation anywhere is detected: protobuf
    itself reads a message that ends between two fields as complete.
    """
    message = pb.RegionManifest(
        version=manifest.version,
        writer_epoch=manifest.writer_epoch,
        replay_after_wal_id=manifest.replay_after_wal_id,
        wal_id_last_seen=manifest.wal_id_last_seen,
        current_generation=manifest.current_generation,
        flushed_generations=[_generation_to_message(entry) for entry in manifest.flushed_generations],
        region_spec_id=manifest.region_spec_id,
        region_id=pb.UUID(uuid=manifest.region_id.bytes),
        region_field_values=[
            pb.RegionFieldValue(field_id=field_id, value=value)
            for field_id, value in sorted(manifest.region_field_values.items())
        ],
        status=pb.RegionStatus.Name(manifest.status),
        commit_id=manifest.commit_id,
    )
    message.MergeFromString(manifest.unknown)
    body = message.SerializeToString(deterministic=True)
    return _checksum_field(xxhash.xxh64_intdigest(body)) + body


def decode_manifest(data: bytes, *, region_id: RegionId, version: int) -> RegionManifest:
    """Read a manifest file; fields that this version does not know are kept.

    ``CorruptionError`` also means: another region or version than the file's place says, or a path that
    leaves the region directory.
    """
    where = {"region_id": str(region_id), "file_version": version}
    try:
        message = parse(pb.RegionManifest(), data)
    except MalformedError as error:
        raise CorruptionError(
            "a region manifest cannot be decoded", remedy=_REMEDY, size_bytes=len(data), **where
        ) from error
    _check_sum(message, data, where)
    if message.region_id.uuid != region_id.bytes:
        raise CorruptionError(
            "a region manifest belongs to another region than its directory",
            remedy=_REMEDY,
            found=_show_uuid(message.region_id.uuid),
            **where,
        )
    if message.version != version:
        raise CorruptionError(
            "a region manifest has another version than its file name", remedy=_REMEDY, found=message.version, **where
        )
    return RegionManifest(
        region_id=region_id,
        version=message.version,
        region_spec_id=message.region_spec_id,
        region_field_values=MappingProxyType({value.field_id: value.value for value in message.region_field_values}),
        writer_epoch=message.writer_epoch,
        replay_after_wal_id=message.replay_after_wal_id,
        wal_id_last_seen=message.wal_id_last_seen,
        current_generation=message.current_generation,
        flushed_generations=tuple(_generation_from_message(entry, where) for entry in message.flushed_generations),
        status=_status(message.status, where),
        commit_id=message.commit_id,
        unknown=unknown_fields(message),
    )


def _checksum_field(checksum: int) -> bytes:
    # Serialised alone so that it comes first. Protobuf does not write zeros, so 0 counts as 1.
    return pb.RegionManifest(checksum=checksum or 1).SerializeToString()


def _check_sum(message: pb.RegionManifest, data: bytes, where: dict[str, object]) -> None:
    front = _checksum_field(message.checksum)
    if not message.checksum or not data.startswith(front):
        return
    found = xxhash.xxh64_intdigest(memoryview(data)[len(front) :]) or 1
    if found != message.checksum:
        raise CorruptionError(
            "a region manifest does not match its checksum",
            remedy=_REMEDY,
            expected=f"{message.checksum:016x}",
            found=f"{found:016x}",
            **where,
        )


def _generation_to_message(entry: FlushedGeneration) -> pb.FlushedGeneration:
    message = pb.FlushedGeneration(
        generation=entry.generation,
        path=entry.path,
        in_memory_bytes=entry.in_memory_bytes,
        physical_rows=entry.physical_rows,
        wal_digest=entry.wal_digest,
    )
    message.MergeFromString(entry.unknown)
    return message


def _generation_from_message(message: pb.FlushedGeneration, where: dict[str, object]) -> FlushedGeneration:
    try:
        path = require_generation_path(message.path)
    except InvalidRequestError as error:
        raise CorruptionError(
            "a region manifest records a flushed MemTable outside its region directory",
            remedy=_REMEDY,
            generation=message.generation,
            path=message.path,
            **where,
        ) from error
    return FlushedGeneration(
        generation=message.generation,
        path=path,
        in_memory_bytes=message.in_memory_bytes if message.HasField("in_memory_bytes") else None,
        physical_rows=message.physical_rows if message.HasField("physical_rows") else None,
        wal_digest=message.wal_digest if message.HasField("wal_digest") else None,
        unknown=unknown_fields(message),
    )


def _status(value: int, where: dict[str, object]) -> RegionStatus:
    try:
        return RegionStatus(value)
    except ValueError as error:
        raise CorruptionError(
            "a region has a status that this version does not know",
            remedy="upgrade memwal-core to a version that knows the status",
            status=value,
            **where,
        ) from error


def _show_uuid(raw: bytes) -> str | None:
    return str(uuid.UUID(bytes=raw)) if len(raw) == _UUID_BYTES else None

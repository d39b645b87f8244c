"""The byte form of the MemWAL index details: protobuf, with everything unknown carried over."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.malformed import MalformedError
from memwal_core.format.memwal_index.details import MemWalIndexDetails
from memwal_core.format.messages import M, parse, unknown_fields
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_spec.codec import spec_from_message, spec_to_message
from memwal_core.ids import RegionId

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer as Repeated

_FIRST_FIELD = 1
_MAINTAIN_ALL_FIELD = 12
_LENGTH_DELIMITED = 2


class LegacyIndexError(InvalidRequestError):
    """The index has the layout of early MemWAL releases, which is shown but never changed."""


def is_legacy_payload(payload: bytes) -> bool:
    """Return whether index details have the early layout, whose field 1 is a list of messages.

    Decided on the wire: both layouts share one message name, and a decoder for today's hands back
    an empty index for yesterday's bytes instead of an error.

    Raises:
        CorruptionError: The bytes are not a protobuf message.
    """
    fields = UnknownFieldSet(_parse(Empty(), payload))
    listed = (fields[position] for position in range(len(fields)))
    return any(field.field_number == _FIRST_FIELD and field.wire_type == _LENGTH_DELIMITED for field in listed)


def decode_details(payload: bytes) -> MemWalIndexDetails:
    """Read index details.

    Raises:
        LegacyIndexError: The early layout; leave the table alone.
        CorruptionError: The bytes contradict the format.
    """
    if is_legacy_payload(payload):
        raise LegacyIndexError(
            "the MemWAL index has the layout of early releases, which jobs refuse to touch",
            remedy="copy the rows into a new table and enable MemWAL there; nothing here changes this one",
            payload_bytes=len(payload),
        )
    message = _parse(pb.MemWalIndexDetails(), payload)
    catchup: dict[str, Mapping[RegionId, int]] = {}
    for entry in message.index_catchup:
        if entry.index_name in catchup:
            raise CorruptionError(
                "an index has two catch-up entries", remedy="stop all jobs of this table", index=entry.index_name
            )
        catchup[entry.index_name] = _progress(entry.caught_up_generations)
    return MemWalIndexDetails(
        snapshot_ts_millis=message.snapshot_ts_millis,
        num_regions=message.num_regions,
        inline_snapshots=message.inline_snapshots if message.HasField("inline_snapshots") else None,
        region_specs=tuple(spec_from_message(spec) for spec in message.region_specs),
        maintained_indexes=tuple(message.maintained_indexes),
        merged_generations=_progress(message.merged_generations),
        index_catchup=MappingProxyType(catchup),
        unknown=unknown_fields(message),
    )


def maintains_all_indexes(details: MemWalIndexDetails) -> bool:
    """Return whether MemTables maintain every index of the base table, as pylance can ask for (field 12)."""
    message = pb.MemWalIndexDetails.FromString(details.unknown)
    fields = UnknownFieldSet(message)
    listed = (fields[position] for position in range(len(fields)))
    return any(field.field_number == _MAINTAIN_ALL_FIELD and bool(field.data) for field in listed)


def encode_details(details: MemWalIndexDetails, *, base: bytes = b"") -> bytes:
    """Write index details.

    Args:
        details: What to write.
        base: The bytes that ``details`` were changed from. Parts that are equal in both stay as
            they are, so that unknown fields survive at every depth; without a base only those of
            ``details.unknown`` and of the specs do.

    Returns:
        Bytes that ``decode_details`` reads back as ``details``.
    """
    if not base:
        message = pb.MemWalIndexDetails.FromString(details.unknown)
        before = MemWalIndexDetails(unknown=details.unknown)
    else:
        before = decode_details(base)
        message = pb.MemWalIndexDetails.FromString(base)
    message.snapshot_ts_millis = details.snapshot_ts_millis
    message.num_regions = details.num_regions
    if details.inline_snapshots is None:
        message.ClearField("inline_snapshots")
    else:
        message.inline_snapshots = details.inline_snapshots
    if details.region_specs != before.region_specs:
        del message.region_specs[:]
        message.region_specs.extend(spec_to_message(spec) for spec in details.region_specs)
    message.maintained_indexes[:] = details.maintained_indexes
    if details.merged_generations != before.merged_generations:
        _change_progress(message.merged_generations, details.merged_generations)
    if details.index_catchup != before.index_catchup:
        _change_catchup(message.index_catchup, details.index_catchup)
    return message.SerializeToString(deterministic=True)


def _progress(entries: Repeated[pb.MergedGeneration]) -> Mapping[RegionId, int]:
    progress: dict[RegionId, int] = {}
    for entry in entries:
        region_id = _region_id(entry.region_id.uuid)
        if region_id in progress:
            raise CorruptionError(
                "a region has two progress entries", remedy="stop all jobs of this table", region_id=str(region_id)
            )
        progress[region_id] = entry.generation
    return MappingProxyType(progress)


def _region_id(raw: bytes) -> RegionId:
    try:
        return RegionId(uuid.UUID(bytes=raw))
    except ValueError as error:
        raise CorruptionError(
            "a region id in the MemWAL index is not a UUID", remedy="stop all jobs of this table", found=raw.hex()
        ) from error


def _change_progress(entries: Repeated[pb.MergedGeneration], wanted: Mapping[RegionId, int]) -> None:
    """Bring a list of progress entries to the wanted values, keeping entries that are right."""
    missing = dict(wanted)
    kept = []
    for entry in entries:
        region_id = _region_id(entry.region_id.uuid)
        if region_id in missing:
            entry.generation = missing.pop(region_id)
            kept.append(entry)
    kept = [pb.MergedGeneration.FromString(entry.SerializeToString()) for entry in kept]
    del entries[:]
    entries.extend(kept)
    for region_id, generation in missing.items():
        entries.add(region_id=pb.UUID(uuid=region_id.bytes), generation=generation)


def _change_catchup(entries: Repeated[pb.IndexCatchupProgress], wanted: Mapping[str, Mapping[RegionId, int]]) -> None:
    missing = dict(wanted)
    kept = []
    for entry in entries:
        if entry.index_name in missing:
            _change_progress(entry.caught_up_generations, missing.pop(entry.index_name))
            kept.append(pb.IndexCatchupProgress.FromString(entry.SerializeToString()))
    del entries[:]
    entries.extend(kept)
    for name, progress in missing.items():
        _change_progress(entries.add(index_name=name).caught_up_generations, progress)


def _parse(message: M, payload: bytes) -> M:
    try:
        return parse(message, payload)
    except MalformedError as error:
        raise CorruptionError(
            "the MemWAL index details cannot be read",
            remedy="stop all jobs of this table; compare with an older version of the table",
            payload_bytes=len(payload),
        ) from error

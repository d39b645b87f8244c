"""Reading the bytes of the early MemWAL index. There is no writer on purpose."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from memwal_core.errors import CorruptionError
from memwal_core.format.malformed import MalformedError
from memwal_core.format.memwal_index.legacy import LegacyIndex, LegacyMemWal, LegacyState, WalIds
from memwal_core.format.messages import parse
from memwal_core.format.pb import legacy_mem_wal_pb2 as pb

_MAX_BITMAP_IDS = 1 << 32


def decode_legacy(payload: bytes, version: int) -> LegacyIndex:
    """Read an early index.

    Args:
        payload: Index details that ``is_legacy_payload`` recognised.
        version: The table version they are from.

    Raises:
        CorruptionError: The bytes contradict the early layout, too.
    """
    try:
        message = parse(pb.MemWalIndexDetails(), payload)
    except MalformedError as error:
        raise CorruptionError(
            "the layout of the MemWAL index is not that of any known release",
            remedy="leave the table alone and find out which program wrote it",
            version=version,
            payload_bytes=len(payload),
        ) from error
    return LegacyIndex(version, tuple(_entry(each, version) for each in message.mem_wal_list))


def decode_wal_ids(data: bytes) -> WalIds:
    """Read the ids of WAL entries from a serialised segment.

    Raises:
        CorruptionError: The bytes are not a segment.
    """
    try:
        return WalIds(_spans(parse(pb.U64Segment(), data)))
    except ValueError as error:
        raise CorruptionError(
            "the ids of WAL entries cannot be read",
            remedy="leave the table alone; the WAL itself may be intact",
            size_bytes=len(data),
            problem=str(error),
        ) from error


def _entry(message: pb.MemWalIndexDetails.MemWal, version: int) -> LegacyMemWal:
    try:
        state = LegacyState(pb.MemWalIndexDetails.MemWal.State.Name(message.state))
    except ValueError as error:
        raise CorruptionError(
            "an early MemWAL has a state that no release had",
            remedy="leave the table alone and find out which program wrote it",
            version=version,
            region=message.id.region,
            generation=message.id.generation,
            state=int(message.state),
        ) from error
    return LegacyMemWal(
        region=message.id.region,
        generation=message.id.generation,
        state=state,
        mem_table_location=message.mem_table_location,
        wal_location=message.wal_location,
        wal_entries=_shown_ids(message.wal_entries),
        owner_id=message.owner_id,
        last_updated_dataset_version=message.last_updated_dataset_version,
    )


def _shown_ids(data: bytes) -> WalIds | None:
    try:
        return decode_wal_ids(data)
    except CorruptionError:
        # The display of everything else must not depend on it.
        return None


def _spans(segment: pb.U64Segment) -> tuple[tuple[int, int], ...]:
    form = segment.WhichOneof("segment")
    if form is None:
        return ()
    if form == "range":
        return _range(segment.range.start, segment.range.end)
    if form == "range_with_holes":
        holes = segment.range_with_holes
        return _without(_range(holes.start, holes.end), np.sort(_array(holes.holes)))
    if form == "range_with_bitmap":
        return _runs(_bitmap(segment.range_with_bitmap))
    return _runs(_array(segment.sorted_array if form == "sorted_array" else segment.array))


def _range(start: int, end: int) -> tuple[tuple[int, int], ...]:
    if end < start:
        raise ValueError(f"a range ends at {end} before it starts at {start}")
    return ((start, end - 1),) if end > start else ()


def _without(spans: tuple[tuple[int, int], ...], holes: npt.NDArray[np.uint64]) -> tuple[tuple[int, int], ...]:
    if not spans:
        return ()
    (first, last), kept = spans[0], []
    for hole_first, hole_last in _runs(holes):
        if hole_first < first or hole_last > last:
            raise ValueError(f"holes {hole_first}-{hole_last} lie outside of what is left of the range")
        if hole_first > first:
            kept.append((first, hole_first - 1))
        first = hole_last + 1
    return (*kept, (first, last)) if first <= last else tuple(kept)


def _bitmap(message: pb.U64Segment.RangeWithBitmap) -> npt.NDArray[np.uint64]:
    count = message.end - message.start
    if not 0 <= count <= min(len(message.bitmap) * 8, _MAX_BITMAP_IDS):
        raise ValueError(f"a bitmap of {len(message.bitmap)} bytes cannot describe {count} ids")
    # Lance's own description says highest bit first; its code has always been lowest bit first.
    bits = np.unpackbits(np.frombuffer(message.bitmap, np.uint8), bitorder="little")[:count]
    return np.flatnonzero(bits).astype(np.uint64) + np.uint64(message.start)


def _array(message: pb.EncodedU64Array) -> npt.NDArray[np.uint64]:
    form = message.WhichOneof("array")
    if form == "u16_array":
        return np.frombuffer(message.u16_array.offsets, "<u2").astype(np.uint64) + np.uint64(message.u16_array.base)
    if form == "u32_array":
        return np.frombuffer(message.u32_array.offsets, "<u4").astype(np.uint64) + np.uint64(message.u32_array.base)
    values = message.u64_array.values if form == "u64_array" else b""
    return np.frombuffer(values, "<u8").astype(np.uint64)


def _runs(ids: npt.NDArray[np.uint64]) -> tuple[tuple[int, int], ...]:
    """Return runs of consecutive ids in stored order."""
    if not ids.size:
        return ()
    breaks = np.flatnonzero(ids[1:] != ids[:-1] + np.uint64(1)) + 1
    firsts = ids[np.concatenate([[0], breaks])]
    lasts = ids[np.concatenate([breaks - 1, [ids.size - 1]])]
    return tuple((int(first), int(last)) for first, last in zip(firsts, lasts, strict=True))

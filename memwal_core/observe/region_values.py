"""Values of LanceDB's identity regions, which their ids only confirm: found in rows of their WALs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.paths import ARROW_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.region.client_regions import client_region_id, is_client_region
from memwal_core.region.spec import RegionSpec, RegionValue
from memwal_core.region.values import known_value
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.entry import FIELD_ID_KEY

MOST_REGIONS = 256
"""Regions looked at for one answer; others keep their values unknown."""
_ENTRIES = 4
"""The newest entries may be marks of claims, which have no rows."""
_PREFIX_BYTES = 64 * 1024
_MOST_ENTRY_BYTES = 1 << 30
_ROWS = 16


def values_by_rows(
    store: ObjectStore,
    specs: Collection[RegionSpec],
    manifests: Sequence[RegionManifest],
    wal_tails: Sequence[int],
    concurrency: int,
) -> dict[RegionId, RegionValue]:
    """Return the values of regions whose ids alone do not tell them, where a row of the WAL confirms one.

    Costs two requests and 64 KiB for each such region, a few more where its newest entries have no rows. Reads with
    Arrow only, never with Lance, which ends the process at some damaged files.
    """
    by_id = {spec.spec_id: spec for spec in specs}
    asked = [
        (by_id[manifest.region_spec_id], manifest.region_id, tail)
        for manifest, tail in zip(manifests, wal_tails, strict=True)
        if manifest.region_spec_id in by_id and _is_unknown(by_id[manifest.region_spec_id], manifest)
    ][:MOST_REGIONS]
    found = map_concurrently(lambda each: _value_in_wal(store, *each), asked, concurrency)
    return {region_id: value for (_, region_id, _), value in zip(asked, found, strict=True) if value is not None}


def _is_unknown(spec: RegionSpec, manifest: RegionManifest) -> bool:
    try:
        return is_client_region(spec, manifest.region_id) and known_value(spec, manifest) is None
    except CorruptionError:
        return False


def _value_in_wal(store: ObjectStore, spec: RegionSpec, region_id: RegionId, tail: int) -> RegionValue | None:
    for wal_id in range(tail, max(0, tail - _ENTRIES), -1):
        for value in _first_values(store, spec, wal_entry_path(region_id, wal_id, ARROW_WAL_SUFFIX)):
            try:
                if client_region_id(spec, value) == region_id:
                    return value
            except InvalidRequestError:  # The column's type has changed.
                continue
    return None


def _first_values(store: ObjectStore, spec: RegionSpec, path: str) -> list[RegionValue]:
    """Return the first values of an entry; empty if it has none, is missing, or cannot be read."""
    info = store.head(path)
    if info is None or info.size_bytes > _MOST_ENTRY_BYTES:
        return []
    try:
        column = _first_rows(store.get_range(path, 0, _PREFIX_BYTES), info.size_bytes, spec.fields[0].source_ids[0])
    except (ObjectNotFoundError, OSError, ValueError, MemoryError, pa.ArrowException):
        return []
    return [] if column is None else [(value,) for value in column.unique().to_pylist()]


def _first_rows(prefix: bytes, size_bytes: int, field_id: int) -> pa.Array | None:
    """Return the first rows of a column of an entry of which only the beginning was read.

    The rest stands there as zeros: rows in it come out wrong, and confirm no region's id.
    """
    positions = _positions(pa.ipc.open_stream(prefix).schema)
    if field_id not in positions:
        return None
    entry = bytearray(size_bytes)
    entry[: len(prefix)] = prefix
    options = pa.ipc.IpcReadOptions(included_fields=[positions[field_id]])
    with pa.ipc.open_stream(pa.py_buffer(entry), options=options) as reader:
        column = reader.read_next_batch().column(0).slice(0, _ROWS)
    column.validate(full=True)
    return column


def _positions(schema: pa.Schema) -> Mapping[int, int]:
    stored = [(field.metadata or {}).get(FIELD_ID_KEY, b"") for field in schema]
    return {int(number): position for position, number in enumerate(stored) if number.isdigit()}

"""The region snapshot as an Arrow table: one row per region, for readers of all regions.

It only saves readers one request per region; the region manifests remain the source of truth.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from memwal_core.errors import CorruptionError
from memwal_core.format.memwal_index.details import MemWalIndexDetails
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest
from memwal_core.format.region_spec.model import RegionSpec
from memwal_core.format.region_spec.result_types import decode_scalar, encode_scalar, parse_result_type
from memwal_core.ids import RegionId

_log = logging.getLogger(__name__)

FIELD_PREFIX = "region_field_"
FLUSHED_GENERATIONS_TYPE = pa.list_(pa.struct([pa.field("generation", pa.uint64()), pa.field("path", pa.string())]))

_FIXED_COLUMNS = (
    pa.field("region_id", pa.binary(16), nullable=False),
    pa.field("version", pa.uint64(), nullable=False),
    pa.field("region_spec_id", pa.uint32(), nullable=False),
    pa.field("writer_epoch", pa.uint64(), nullable=False),
    pa.field("replay_after_wal_id", pa.uint64(), nullable=False),
    pa.field("wal_id_last_seen", pa.uint64(), nullable=False),
    pa.field("current_generation", pa.uint64(), nullable=False),
    pa.field("flushed_generations", FLUSHED_GENERATIONS_TYPE, nullable=False),
)

# Names of the same columns in Lance 7 and later.
_OTHER_NAMES = MappingProxyType(
    {
        "shard_id": "region_id",
        "shard_spec_id": "region_spec_id",
        "replay_after_wal_entry_position": "replay_after_wal_id",
        "wal_entry_position_last_seen": "wal_id_last_seen",
    }
)
_OTHER_FIELD_PREFIX = "shard_field_"
_MERGED_COLUMN = "merged_generation"


def snapshot_schema(specs: Sequence[RegionSpec]) -> pa.Schema:
    """Return the schema of a snapshot of regions of these specs.

    The manifest's columns, then one nullable ``region_field_`` column per field id in the order of first
    appearance; equal field ids of several specs share one column.
    """
    types = {field.field_id: parse_result_type(field.result_type) for spec in specs for field in spec.fields}
    return pa.schema([*_FIXED_COLUMNS, *(pa.field(FIELD_PREFIX + name, kind) for name, kind in types.items())])


def build_snapshot(manifests: Sequence[RegionManifest], specs: Sequence[RegionSpec]) -> pa.Table:
    """Return the snapshot of some regions, in the order of their latest manifests.

    A region of a spec that is not in ``specs``, or of none, has NULL field values. ``CorruptionError``: two
    manifests belong to one region, or a stored value does not fit its type.
    """
    if len({manifest.region_id for manifest in manifests}) != len(manifests):
        raise CorruptionError(
            "two manifests belong to one region",
            remedy="build the snapshot from the latest manifest of each region",
            regions=len(manifests),
        )
    schema = snapshot_schema(specs)
    fields_of = {spec.spec_id: {field.field_id for field in spec.fields} for spec in specs}
    columns: list[list[object]] = [
        [manifest.region_id.bytes for manifest in manifests],
        [manifest.version for manifest in manifests],
        [manifest.region_spec_id for manifest in manifests],
        [manifest.writer_epoch for manifest in manifests],
        [manifest.replay_after_wal_id for manifest in manifests],
        [manifest.wal_id_last_seen for manifest in manifests],
        [manifest.current_generation for manifest in manifests],
        [[{"generation": f.generation, "path": f.path} for f in m.flushed_generations] for m in manifests],
    ]
    for column in schema.names[len(columns) :]:
        name, kind = column.removeprefix(FIELD_PREFIX), schema.field(column).type
        stored = (
            manifest.region_field_values.get(name) if name in fields_of.get(manifest.region_spec_id, ()) else None
            for manifest in manifests
        )
        columns.append([None if value is None else decode_scalar(value, kind) for value in stored])
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def normalise_snapshot(found: pa.Table, details: MemWalIndexDetails) -> pa.Table:
    """Return a stored snapshot under today's names and types: fixed columns, then field columns as stored.

    Lance's later column names are accepted. The merge progress of ``details`` wins over a
    ``merged_generation`` column, which early writers stored; a difference is logged.
    """
    names = [_own_name(name) for name in found.column_names]
    if len(set(names)) != len(names):
        raise CorruptionError(
            "a snapshot column occurs under two names",
            remedy="read with consistency `latest`, which reads the region manifests instead",
            columns=found.column_names,
        )
    renamed = found.rename_columns(names)
    missing = [field.name for field in _FIXED_COLUMNS if field.name not in names]
    if missing:
        raise CorruptionError(
            "a region snapshot lacks columns",
            remedy="read with consistency `latest`, which reads the region manifests instead",
            missing=missing,
            found=names,
        )
    values = [field for field in renamed.schema if field.name.startswith(FIELD_PREFIX)]
    schema = pa.schema([*_FIXED_COLUMNS, *(field.remove_metadata() for field in values)])
    try:
        table = renamed.select(schema.names).cast(schema)
        _require_values(table)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise CorruptionError(
            "a region snapshot has columns of unexpected types",
            remedy="read with consistency `latest`, which reads the region manifests instead",
            found=str(found.schema),
        ) from error
    if _MERGED_COLUMN in names:
        _log_disagreement(table.column("region_id"), renamed.column(_MERGED_COLUMN), details)
    return table


def _require_values(table: pa.Table) -> None:
    """Refuse NULL where a region has a value; ``ValueError`` if there is one."""
    flushed = table.column("flushed_generations").combine_chunks().flatten()
    empty = [field.name for field in _FIXED_COLUMNS if table.column(field.name).null_count]
    if empty or flushed.null_count or any(column.null_count for column in flushed.flatten()):
        raise ValueError(f"NULL in {empty or 'flushed_generations'}")


def snapshot_manifests(snapshot: pa.Table) -> tuple[RegionManifest, ...]:
    """Return the rows of a snapshot as region manifests, without what it does not hold (status, unknown fields)."""
    fields = [
        (name.removeprefix(FIELD_PREFIX), snapshot.schema.field(name).type, snapshot.column(name).to_pylist())
        for name in snapshot.column_names
        if name.startswith(FIELD_PREFIX)
    ]
    rows = snapshot.select([field.name for field in _FIXED_COLUMNS]).to_pylist()
    return tuple(_manifest(row, _stored_values(fields, index)) for index, row in enumerate(rows))


def _stored_values(fields: Sequence[tuple[str, pa.DataType, list[object]]], row: int) -> Mapping[str, bytes]:
    return {
        name: encode_scalar(values[row], kind)  # type: ignore[arg-type]  # typed by its column
        for name, kind, values in fields
        if values[row] is not None
    }


def _manifest(row: Mapping[str, object], values: Mapping[str, bytes]) -> RegionManifest:
    fixed: dict[str, object] = {**row}
    flushed = fixed.pop("flushed_generations")
    region_id = fixed.pop("region_id")
    return RegionManifest(
        region_id=RegionId(uuid.UUID(bytes=region_id)),  # type: ignore[arg-type]
        region_field_values=MappingProxyType(dict(values)),
        flushed_generations=tuple(FlushedGeneration(**entry) for entry in flushed),  # type: ignore[attr-defined]
        **fixed,  # type: ignore[arg-type]
    )


def _own_name(name: str) -> str:
    if name.startswith(_OTHER_FIELD_PREFIX):
        return FIELD_PREFIX + name.removeprefix(_OTHER_FIELD_PREFIX)
    return _OTHER_NAMES.get(name, name)


def _log_disagreement(region_ids: pa.ChunkedArray, merged: pa.ChunkedArray, details: MemWalIndexDetails) -> None:
    for raw, stored in zip(region_ids.to_pylist(), merged.to_pylist(), strict=True):
        region_id = RegionId(uuid.UUID(bytes=raw))
        if (stored or 0) != details.merged_generation(region_id):
            _log.warning(
                "the snapshot's merge progress differs from the index and is ignored "
                "[region_id=%s, snapshot=%s, merged_generations=%d]",
                region_id,
                stored,
                details.merged_generation(region_id),
            )

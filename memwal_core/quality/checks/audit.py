"""The audit of every key of a flushed MemTable, in this process or on an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError, InvalidRequestError, MemwalError
from memwal_core.flushed.read import MergeTarget, SchemaMismatch, map_columns, open_generation
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.region.client_regions import client_region_id, is_client_region
from memwal_core.region.spec import MANUAL_SPEC_ID, RegionRouter, RegionSpec, RegionValue, decode_region_value
from memwal_core.region.values import states_its_value

_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Routing:
    """Where the rows of a region belong.

    Attributes:
        router: Of the region's spec; None if the region was created by hand or its value cannot be decoded.
        spec: Of the region, if its value is not known and its id tells which rows belong to it.
        of_key: Whether all of them belong to the primary key, so that deletes can be routed, too.
        problem: Why the region's value is unusable; empty if it is usable.
    """

    router: RegionRouter | None
    value: RegionValue = ()
    sources: tuple[str, ...] = ()
    of_key: bool = True
    problem: str = ""
    spec: RegionSpec | None = None


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One flushed MemTable to audit, and what the survey found wrong with its schema. Can be pickled."""

    region_id: RegionId
    generation: int
    uri: str
    target: MergeTarget
    routing: Routing
    schema_problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """The result of one audit.

    Attributes:
        rows: Live rows.
        unreadable: Why it cannot be read; None if it can.
        schema_problem: Why its columns do not fit the base table; None if they do.
        null_keys: Rows with a NULL in their key.
        strays: Rows that belong to another region.
        routing_problem: Why strays cannot be found; None if they can or there is no spec.
    """

    region_id: str
    generation: int
    rows: int | None = None
    unreadable: str | None = None
    schema_problem: str | None = None
    null_keys: int | None = None
    strays: int | None = None
    routing_problem: str | None = None


def routing_of(manifest: RegionManifest, specs: Mapping[int, RegionSpec], target: MergeTarget) -> Routing:
    """Return where the rows of a region belong; ``specs`` are by id."""
    if manifest.region_spec_id == MANUAL_SPEC_ID:
        return Routing(None)
    spec = specs.get(manifest.region_spec_id)
    if spec is None:
        return Routing(None, problem=f"the table has no region spec {manifest.region_spec_id}")
    try:
        value = decode_region_value(spec, manifest.region_field_values)
    except CorruptionError as error:
        return Routing(None, problem=str(error))
    derived = None
    if not states_its_value(manifest):
        if not is_client_region(spec, manifest.region_id):
            return Routing(None)
        derived = spec
    used = {source for field in spec.fields for source in field.source_ids}
    sources = tuple(name for name in target.schema.names if target.field_ids[name] in used)
    return Routing(RegionRouter(spec, target.field_ids), value, sources, set(sources) <= set(target.key), spec=derived)


def audit_generation(task: AuditTask, storage_options: Mapping[str, str]) -> AuditFacts:
    """Read the keys and routing columns of a flushed MemTable, batch by batch.

    An unreadable MemTable is a fact, not an error; other errors mean that storage failed or refused.
    """
    name = str(task.region_id)
    try:
        return _audited(task, storage_options)
    except (InvalidRequestError, CorruptionError) as error:
        return AuditFacts(name, task.generation, unreadable=str(error))


def _audited(task: AuditTask, storage_options: Mapping[str, str]) -> AuditFacts:
    dataset = open_generation(task.uri, storage_options)
    mapping = map_columns(task.target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch) or task.schema_problem:
        reason = mapping.reason if isinstance(mapping, SchemaMismatch) else task.schema_problem
        return AuditFacts(str(task.region_id), task.generation, dataset.count_rows(), schema_problem=reason)
    wanted = [name for name in dict.fromkeys((*task.target.key, *task.routing.sources)) if name in mapping.sources]
    columns = {name: mapping.sources[name] for name in wanted}
    read = [*columns.values(), *([TOMBSTONE_COLUMN] if mapping.has_tombstones else [])]
    rows = null_keys = strays = 0
    routing_problem = task.routing.problem or None
    with translated("audit a flushed MemTable", task.uri):
        for batch in dataset.scanner(columns=read, batch_size=_BATCH_ROWS).to_batches():
            table = pa.table({name: batch.column(source) for name, source in columns.items()})
            rows += table.num_rows
            null_keys += _null_keys(table, task.target.key)
            if task.routing.router is None or routing_problem is not None:
                continue
            routed = table if task.routing.of_key else _without_deletes(table, batch)
            try:
                strays += _strays(routed, task.region_id, task.routing)
            except MemwalError as error:
                routing_problem = str(error)
    return AuditFacts(
        str(task.region_id),
        task.generation,
        rows,
        null_keys=null_keys,
        strays=strays,
        routing_problem=routing_problem,
    )


def _null_keys(table: pa.Table, key: tuple[str, ...]) -> int:
    null = pc.is_null(table.column(key[0]))
    for name in key[1:]:
        null = pc.or_(null, pc.is_null(table.column(name)))
    return int(pc.sum(null).as_py() or 0)


def _without_deletes(table: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    # A delete has values in its key only, so a spec over other columns cannot route it.
    if TOMBSTONE_COLUMN not in batch.schema.names:
        return table
    return table.filter(pc.invert(pc.fill_null(batch.column(TOMBSTONE_COLUMN), False)))


def _strays(table: pa.Table, region_id: RegionId, routing: Routing) -> int:
    assert routing.router is not None  # noqa: S101 - the caller has checked

    def belongs(value: RegionValue) -> bool:
        derived = routing.spec
        return value == routing.value if derived is None else client_region_id(derived, value) == region_id

    return sum(part.rows.num_rows for part in routing.router.route(table) if not belongs(part.value))

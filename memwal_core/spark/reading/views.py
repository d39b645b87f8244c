"""What a table is made of, as small tables: its regions, their generations, the runs of its jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from memwal_core.coordination.ledger import RUNS_SCHEMA, Ledger
from memwal_core.reader import GenerationSource, ReadPlan, SourceKind, plan_read
from memwal_core.reader.plan.read_plan import RegionRead
from memwal_core.region import FlushedGeneration
from memwal_core.spark.options import ReadOptions, View
from memwal_core.spark.reading.pinned import open_table, survey_table

_FRESHNESS = [
    pa.field("consistency", pa.string(), nullable=False),
    pa.field("base_version", pa.int64(), nullable=False),
    pa.field("taken", pa.timestamp("us", tz="UTC"), nullable=False),
]

REGIONS_SCHEMA = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("region_spec_id", pa.int64(), nullable=False),
        pa.field("writer_epoch", pa.int64(), nullable=False),
        pa.field("current_generation", pa.int64(), nullable=False),
        pa.field("merged_generation", pa.int64(), nullable=False),
        pa.field("unmerged_generations", pa.int64(), nullable=False),
        pa.field("unmerged_rows", pa.int64()),
        pa.field("replay_after_wal_id", pa.int64(), nullable=False),
        pa.field("last_wal_id", pa.int64()),
        *_FRESHNESS,
    ]
)
"""One row per region. ``unmerged_rows`` counts flushed rows, older duplicates included, NULL if a manifest does
not say; ``last_wal_id`` is NULL unless the WAL was read."""

GENERATIONS_SCHEMA = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("is_merged", pa.bool_(), nullable=False),
        pa.field("physical_rows", pa.int64()),
        pa.field("in_memory_bytes", pa.int64()),
        pa.field("path", pa.string(), nullable=False),
        *_FRESHNESS,
    ]
)
"""One row per generation that a manifest records or a WAL holds; rows and bytes are NULL where not recorded."""

_SCHEMAS = {View.REGIONS: REGIONS_SCHEMA, View.GENERATIONS: GENERATIONS_SCHEMA, View.HISTORY: RUNS_SCHEMA}


def view_schema(view: View) -> pa.Schema:
    """Return the schema of a view that has no rows of the table."""
    return _SCHEMAS[view]


def read_view(options: ReadOptions) -> pa.Table:
    """Return the rows of such a view."""
    table = open_table(options)
    if options.view is View.HISTORY:
        return Ledger(table.store, table.ids, settings=table.settings.ledger, clock=table.clock).table()
    plan = plan_read(survey_table(table, options), table.store.uri_of).require_sound()
    rows = _regions(plan) if options.view is View.REGIONS else _generations(plan)
    return pa.Table.from_pylist(list(rows), schema=view_schema(options.view))


def _freshness(plan: ReadPlan) -> dict[str, object]:
    freshness = plan.freshness
    return {
        "consistency": str(freshness.achieved),
        "base_version": freshness.base_version,
        "taken": freshness.taken,
    }


def _regions(plan: ReadPlan) -> Iterator[dict[str, object]]:
    for region in plan.regions:
        manifest = region.manifest
        recorded = _recorded(region)
        rows = [
            recorded[each.generation].physical_rows for each in region.generations if each.kind is SourceKind.FLUSHED
        ]
        spans = [each.wal for each in region.generations if each.wal is not None]
        looked = plan.freshness.achieved.value == "durable"
        yield {
            "region_id": str(region.region_id),
            "region_spec_id": manifest.region_spec_id,
            "writer_epoch": manifest.writer_epoch,
            "current_generation": manifest.current_generation,
            "merged_generation": region.merged,
            "unmerged_generations": len(region.generations),
            "unmerged_rows": None if None in rows else sum(each or 0 for each in rows),
            "replay_after_wal_id": manifest.replay_after_wal_id,
            "last_wal_id": max([span.last for span in spans], default=manifest.replay_after_wal_id) if looked else None,
            **_freshness(plan),
        }


def _generations(plan: ReadPlan) -> Iterator[dict[str, object]]:
    for region in plan.regions:
        recorded = _recorded(region)
        for source in (*region.generations, *region.merged_generations):
            yield {**_generation(source, recorded.get(source.generation), region.merged), **_freshness(plan)}


def _generation(source: GenerationSource, recorded: FlushedGeneration | None, merged: int) -> dict[str, object]:
    is_flushed = source.kind is SourceKind.FLUSHED and recorded is not None
    return {
        "region_id": str(source.region_id),
        "generation": source.generation,
        "kind": str(source.kind),
        "is_merged": source.generation <= merged,
        "physical_rows": recorded.physical_rows if is_flushed and recorded else None,
        "in_memory_bytes": recorded.in_memory_bytes if is_flushed and recorded else None,
        "path": source.path,
    }


def _recorded(region: RegionRead) -> dict[int, FlushedGeneration]:
    return {each.generation: each for each in region.manifest.flushed_generations}

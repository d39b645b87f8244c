"""A table as it was found when a read was planned, as a value that travels to executors.

Planning reads once: regions first, then one base version with the merge progress that belongs to
it. The result is pinned, so that all tasks of a read, and all uses of a DataFrame, answer from
the same moment. Only names travel, never rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pyarrow as pa

from memwal_core.base_table import TableReader, TableState
from memwal_core.base_table.reading.filter_text import require_whole_filter
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.coordination.freeze.reading import RememberedHistory
from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import RegionId
from memwal_core.reader import (
    Consistency,
    Freshness,
    GenerationSource,
    ReadPlan,
    SourceKind,
    Survey,
    Surveyor,
    plan_read,
)
from memwal_core.reader.plan.predicate import boxes_of
from memwal_core.reader.plan.read_plan import RegionRead
from memwal_core.reader.plan.sources import ObservedRegion, WalSpan
from memwal_core.reader.scan.scan import GENERATION_COLUMN
from memwal_core.region import ManifestStore
from memwal_core.spark.options import ReadOptions, View

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PinnedRegion:
    """What one region adds to the base version, as bytes and numbers that can be pickled.

    Attributes:
        wal: Where its unflushed rows are; None if there are none or the read does not ask for them.
        physical_rows: Rows of its unmerged generations as far as the manifest says, older duplicates included.
    """

    region_id: RegionId
    manifest: bytes = field(repr=False)
    manifest_version: int
    wal: WalSpan | None
    physical_rows: int

    @classmethod
    def of(cls, region: RegionRead) -> PinnedRegion:
        """Return a planned region as such a value."""
        manifest = region.manifest
        recorded = {each.generation: each.physical_rows or 0 for each in manifest.flushed_generations}
        return cls(
            region_id=region.region_id,
            manifest=encode_manifest(manifest),
            manifest_version=manifest.version,
            wal=next((each.wal for each in region.generations if each.wal is not None), None),
            physical_rows=sum(recorded.get(each.generation, 0) for each in region.generations),
        )

    def observed(self, rows: pa.Table | None) -> ObservedRegion:
        """Return the region as a survey found it, with its unflushed rows if it has any."""
        manifest = decode_manifest(self.manifest, region_id=self.region_id, version=self.manifest_version)
        if self.wal is None or rows is None:
            return ObservedRegion(manifest)
        source = GenerationSource(self.region_id, manifest.current_generation, SourceKind.WAL, rows=rows, wal=self.wal)
        return ObservedRegion(manifest, (source,))


@dataclass(frozen=True, slots=True)
class PinnedFragment:
    """A fragment of the base version; ``physical_rows`` include deleted ones."""

    fragment_id: int
    physical_rows: int


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """One moment of a table.

    Attributes:
        regions: Regions with rows that the base version lacks and that may pass the filter.
    """

    options: ReadOptions
    freshness: Freshness
    schema: pa.Schema
    fragments: tuple[PinnedFragment, ...]
    regions: tuple[PinnedRegion, ...] = field(repr=False)

    @property
    def version(self) -> int:
        """The base version."""
        return self.freshness.base_version

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the read returns unless a schema asks for fewer."""
        return self.options.columns if self.options.columns is not None else tuple(self.schema.names)

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of these columns."""
        generation = pa.field(GENERATION_COLUMN, pa.int64(), nullable=False)
        return pa.schema(
            [self.schema.field(name) if name in self.schema.names else generation for name in self.columns]
        )


def open_table(options: ReadOptions) -> TableReader:
    """Open the table of a read."""
    return TableReader.open(options.uri, storage_options=options.storage)


def survey_table(table: TableReader, options: ReadOptions) -> Survey:
    """Find where the rows of a table are, without reading any; for view ``base``, the base table alone."""
    if options.view is View.BASE:
        state = table.state(options.version)
        known = Consistency.SNAPSHOT
        return Survey(state, (), known, known, state.timestamp, is_time_travel=options.version is not None)
    manifests = ManifestStore(table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng)
    history = RememberedHistory(table, FreezeStore(table.store, table.ids, clock=table.clock))
    return Surveyor(table, manifests, history=history, reads_wal=False).survey(options.consistency, options.version)


def pin_table(table: TableReader, options: ReadOptions) -> PinnedTable:
    """Pin a table for a read of its rows.

    ``InvalidRequestError``: a column does not exist, the table has no usable primary key, or Lance does not accept the
    filter.
    """
    survey = survey_table(table, options)
    plan = _plan(table, survey, options)
    state = survey.state
    if options.view is View.LSM:
        state.require_primary_key()
    _check_columns(options, state)
    dataset = table.dataset(state.version)
    if options.filter_sql is not None:
        require_whole_filter(dataset, options.filter_sql)
    described = [each.metadata for each in dataset.get_fragments()]
    regions = [PinnedRegion.of(region) for region in plan.regions if region.generations]
    pinned = PinnedTable(
        options=options,
        freshness=plan.freshness,
        schema=state.schema,
        fragments=tuple(PinnedFragment(each.id, each.physical_rows) for each in described),
        regions=tuple(regions),
    )
    _log.info(
        "planned a read [table=%s, view=%s, freshness=%s, fragments=%d, regions=%d, pruned=%d]",
        table.uri,
        options.view,
        pinned.freshness.to_dict(),
        len(pinned.fragments),
        len(pinned.regions),
        len(plan.pruned),
    )
    return pinned


def _plan(table: TableReader, survey: Survey, options: ReadOptions) -> ReadPlan:
    boxes = boxes_of(options.filter_sql, survey.state.schema) if options.filter_sql is not None else None
    return plan_read(survey, table.store.uri_of, boxes).require_sound()


def _check_columns(options: ReadOptions, state: TableState) -> None:
    unknown = [name for name in options.columns or () if name not in state.schema.names and name != GENERATION_COLUMN]
    if unknown:
        raise InvalidRequestError(
            "these columns do not exist",
            remedy="name top-level columns of the table",
            unknown=unknown,
            columns=list(state.schema.names),
        )

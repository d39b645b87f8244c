"""What a table writer derives from the base table, again whenever its schema changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.ids import RegionId
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.spec import RegionRouter, RegionSpec
from memwal_core.writer.admission.memory import MemoryBudget
from memwal_core.writer.claim.takeover import require_no_live_writer
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.region_writer import RegionWriter

_ANY_ROW = pa.table({"any": pa.nulls(1)})


@dataclass(frozen=True, slots=True)
class TableShape:
    """What decides how rows of a table are written; rows that fit one shape fit an equal one as they are.

    Attributes:
        field_ids: Top-level column -> field id.
        inner_ids: Top-level column -> the ids of all fields inside of it; only columns that have some.
    """

    schema: pa.Schema
    field_ids: dict[str, int]
    key: tuple[str, ...]
    spec: RegionSpec
    inner_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def is_same(self, other: TableShape) -> bool:
        """Return whether rows for the other shape fit this one as they are."""
        return bool(
            self.schema.equals(other.schema, check_metadata=True)
            and self.field_ids == other.field_ids
            and self.inner_ids == other.inner_ids
            and self.spec == other.spec
        )


@dataclass(frozen=True, slots=True, eq=False)
class WriteTarget:
    """Where rows go."""

    shape: TableShape
    router: RegionRouter
    directory: RegionDirectory


@dataclass(frozen=True, slots=True)
class TableContext:
    """The components of a table writer.

    Attributes:
        spec_id: The region spec to follow; None for the only one.
        failpoints: As for ``RegionWriter.open``.
        claimed: Region -> the epoch that this table writer claimed last.
    """

    table: BaseTable
    spec_id: int | None
    failpoints: Failpoints = NO_FAILPOINTS
    claimed: dict[RegionId, int] = field(default_factory=dict)

    def look(self) -> TableShape:
        """Read the base table; ``InvalidRequestError`` if it cannot be written or the spec does not exist."""
        state = self.table.state()
        details = self.table.require_writable(state)
        spec = choose_spec(details.region_specs, self.spec_id)
        key = state.require_primary_key().columns
        return TableShape(state.schema, dict(state.field_ids), key, spec, dict(state.inner_ids))

    def load(self) -> WriteTarget:
        """Read the base table and its regions; errors as for ``look``."""
        return self.target(self.look())

    def target(self, shape: TableShape) -> WriteTarget:
        """Read which regions a shape's spec has."""
        is_ours = self.table.settings.writer.new_region_codec == "lance"
        directory = RegionDirectory(
            self.table.store,
            shape.spec,
            self._manifests(),
            self.table.ids,
            self.table.settings.storage.concurrency,
            RegionStatus.SEALED if is_ours else RegionStatus.ACTIVE,
        )
        directory.refresh()
        target = WriteTarget(shape, RegionRouter(shape.spec, shape.field_ids), directory)
        _require_one_region_per_key(target)
        return target

    def open_region(self, region_id: RegionId, memory: MemoryBudget, expected_epoch: int | None = None) -> RegionWriter:
        """Claim a region; arguments and errors as for ``RegionWriter.open``."""
        return RegionWriter.open(
            self.table,
            region_id,
            memory=memory,
            failpoints=self.failpoints,
            expected_epoch=expected_epoch,
            on_claim=partial(self.claimed.__setitem__, region_id),
        )

    def epoch_without_writer(self, region_id: RegionId) -> int:
        """Return a region's epoch if no writer seems alive; errors as for ``takeover.require_no_live_writer``.

        Only for a region that has no writer here: its last claim by this table writer came to nothing, or is over.
        """
        manifest = self._manifests().load(region_id)
        if manifest.writer_epoch == self.claimed.get(region_id):
            return manifest.writer_epoch
        quiet_s = self.table.settings.writer.takeover_quiet_s
        require_no_live_writer(self.table.store, manifest, self.table.clock.now(), quiet_s)
        return manifest.writer_epoch

    def _manifests(self) -> ManifestStore:
        return ManifestStore(self.table.store, self.table.ids, settings=self.table.settings.storage)


def _require_one_region_per_key(target: WriteTarget) -> None:
    """Refuse a spec that sends keys elsewhere than before, because it computes from a column that was dropped."""
    spec, present = target.shape.spec, set(target.shape.field_ids.values())
    gone = {source for field in spec.fields for source in field.source_ids} - present
    if gone and target.directory.has_others([] if target.router.sources else target.router.values(_ANY_ROW)):
        raise InvalidRequestError(
            "rows cannot be sent to regions by columns that were dropped: older rows of their keys may wait elsewhere",
            remedy="run `memwal checkpoint`, divide the table anew with `memwal add-spec`, and write with that spec",
            spec_id=spec.spec_id,
            field_ids=sorted(gone),
        )


def choose_spec(specs: tuple[RegionSpec, ...], spec_id: int | None) -> RegionSpec:
    """Return the region spec to follow; ``spec_id`` is None if there must be exactly one."""
    found = [spec for spec in specs if spec_id is None or spec.spec_id == spec_id]
    if len(found) == 1:
        return found[0]
    raise InvalidRequestError(
        "the table has no such region spec"
        if spec_id is not None
        else "the table does not have exactly one region spec",
        remedy="pass one of the known spec ids",
        spec_id=spec_id,
        known=[spec.spec_id for spec in specs],
    )

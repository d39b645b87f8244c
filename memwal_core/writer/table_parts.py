"""What a table writer derives from the base table, again whenever its schema changes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.errors import InvalidRequestError
from memwal_core.flush import Reach, nowhere
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import ManifestStore, RegionStatus
from memwal_core.region_spec import RegionRouter, RegionSpec
from memwal_core.settings import Settings
from memwal_core.writer.memory import MemoryBudget
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.region_writer import RegionWriter
from memwal_core.writer.takeover import require_no_live_writer


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Where rows go, as of one look at the base table.

    Attributes:
        schema: The base table's schema.
        field_ids: Top-level column -> field id.
        key: Primary key columns.
        spec: The region spec that is followed.
        router: Splits batches by it.
        directory: The regions of the spec.
        checked_at: Monotonic time of the look.
    """

    schema: pa.Schema
    field_ids: dict[str, int]
    key: tuple[str, ...]
    spec: RegionSpec
    router: RegionRouter
    directory: RegionDirectory
    checked_at: float

    def has_shape_of(self, other: Target) -> bool:
        """Return whether rows for the other target fit this one as they are."""
        return bool(
            self.schema.equals(other.schema, check_metadata=True)
            and self.field_ids == other.field_ids
            and self.spec == other.spec
        )


@dataclass(frozen=True, slots=True)
class TableParts:
    """The components of a table writer.

    Attributes:
        table: The base table.
        settings: Values.
        clock: Time.
        ids: Source of identifiers.
        spec_id: The region spec to follow; None for the only one.
        reach: As for ``RegionWriter.open``.
    """

    table: BaseTable
    settings: Settings
    clock: Clock
    ids: IdSource
    spec_id: int | None
    reach: Reach = nowhere

    def load(self) -> Target:
        """Look at the base table.

        Raises:
            InvalidRequestError: The table cannot be written, or the spec does not exist.
        """
        now = self.clock.monotonic()
        state = self.table.state()
        details = self.table.require_writable(state)
        key = state.require_primary_key().columns
        spec = choose_spec(details.region_specs, self.spec_id)
        is_ours = self.settings.writer.new_region_codec == "lance"
        directory = RegionDirectory(
            self.table.store,
            spec,
            self._manifests(),
            self.ids,
            self.settings.storage.concurrency,
            RegionStatus.SEALED if is_ours else RegionStatus.ACTIVE,
        )
        directory.refresh()
        router = RegionRouter(spec, state.field_ids)
        return Target(state.schema, dict(state.field_ids), key, spec, router, directory, now)

    def open_region(self, region_id: RegionId, memory: MemoryBudget) -> RegionWriter:
        """Claim a region; errors as for ``RegionWriter.open``."""
        return RegionWriter.open(
            self.table,
            region_id,
            settings=self.settings,
            clock=self.clock,
            ids=self.ids,
            memory=memory,
            reach=self.reach,
        )

    def require_no_live_writer(self, region_id: RegionId) -> None:
        """Return if nobody seems to write a region; errors as for ``takeover.require_no_live_writer``."""
        manifest = self._manifests().load(region_id)
        quiet_s = self.settings.writer.takeover_quiet_s
        require_no_live_writer(self.table.store, manifest, self.clock.now(), quiet_s)

    def _manifests(self) -> ManifestStore:
        return ManifestStore(self.table.store, self.ids, settings=self.settings.storage)


def choose_spec(specs: tuple[RegionSpec, ...], spec_id: int | None) -> RegionSpec:
    """Return the region spec to follow.

    Args:
        specs: Those of the table.
        spec_id: Which; None if there must be exactly one.

    Raises:
        InvalidRequestError: There is no such spec, or not exactly one.
    """
    found = [spec for spec in specs if spec_id is None or spec.spec_id == spec_id]
    if len(found) == 1:
        return found[0]
    raise InvalidRequestError(
        "the table has no such region spec"
        if spec_id is not None
        else "the table does not have exactly one region spec",
        remedy="name one of the spec ids",
        spec_id=spec_id,
        known=[spec.spec_id for spec in specs],
    )

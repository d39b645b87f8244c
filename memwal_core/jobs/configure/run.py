"""Change a table's configuration, each change in one strict commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import lance

from memwal_core.base_table import BaseTable, IndexFacts, TableState, read_coverage, translated
from memwal_core.base_table.indexes.inventory import check_maintained
from memwal_core.base_table.indexes.recipes import has_values
from memwal_core.base_table.indexes.removal import remove_index
from memwal_core.errors import ConflictError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.configure import with_maintained_index, with_region_spec, without_maintained_index
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.configure.replacement import ReplacementCase, replacement_obstacles
from memwal_core.jobs.outcome import JobOutcome, no_lease
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.region.spec import RegionSpec, next_spec_id, validate_new_spec
from memwal_core.region.spec.text import parse_spec
from memwal_core.storage.concurrent import map_concurrently


@dataclass(frozen=True, slots=True)
class ConfigureReport:
    """One change.

    Attributes:
        outcome: ``done``; ``nothing_to_do`` if the table was already so; ``planned`` if a dry run found no obstacle;
            ``blocked`` if something still needs what would go.
        version: The version that has the change, or that was examined.
    """

    table_uri: str
    outcome: JobOutcome
    change: str
    version: int
    obstacles: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "configure",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "change": self.change,
            "version": self.version,
            "obstacles": list(self.obstacles),
        }


class TableConfiguration:
    """Changes to one table's configuration. Each keeps merge progress, catch-up and snapshots.

    Args:
        concurrency: Requests under way at once.
        check: Called before each change; raises if the table must not be changed, for example because it is frozen.
    """

    def __init__(
        self, table: BaseTable, manifests: ManifestStore, concurrency: int, check: Callable[[], None] = no_lease
    ) -> None:
        self._check = check
        self._table = table
        self._manifests = manifests
        self._concurrency = concurrency

    def add_region_spec(self, spec: RegionSpec, *, dry_run: bool = False) -> ConfigureReport:
        """Add a region spec; writers use it from their next claim on. A dry run only checks.

        Raises:
            InvalidRequestError: Its id is taken, or it does not fit the table. Correct the spec.
            ConflictError: Other processes kept changing the table. Try again.
        """

        def change(state: TableState, details: MemWalIndexDetails) -> MemWalIndexDetails:
            fields = {field_id: state.schema.field(name) for name, field_id in state.field_ids.items()}
            validate_new_spec(spec, details.region_specs, fields, state.require_primary_key().field_ids)
            return with_region_spec(details, spec)

        return self._update(change, f"region spec {spec.spec_id} added", dry_run=dry_run)

    def divide(self, regions: Sequence[str], *, dry_run: bool = False) -> ConfigureReport:
        """Add a region spec of the given components, for example ``["bucket(id, 8)"]``, under the next free id.

        Nothing is done if a spec of these components is there: the report names it, and writers may follow it.
        Rows that lie in regions of older specs stay there until they are merged, and until then writers of the new
        spec are refused, since a key must not wait in two regions.

        Raises:
            InvalidRequestError: A component is not understood, or the spec does not fit the table.
            ConflictError: Other processes kept changing the table. Try again.
        """
        state = self._table.state()
        specs = self._table.require_mem_wal(state).region_specs
        for spec in specs:
            if parse_spec(spec.spec_id, regions, state.schema, state.field_ids).fields == spec.fields:
                what = f"region spec {spec.spec_id} divides the table so already"
                return ConfigureReport(self._table.uri, JobOutcome.NOTHING_TO_DO, what, state.version)
        used = {spec.spec_id for spec in specs}
        made = self._manifests.load_many(self._manifests.region_ids(), self._concurrency)
        spec_id = next_spec_id({*used, *(manifest.region_spec_id for manifest in made)})
        return self.add_region_spec(parse_spec(spec_id, regions, state.schema, state.field_ids), dry_run=dry_run)

    def maintain_index(self, name: str, *, dry_run: bool = False) -> ConfigureReport:
        """Let MemTables maintain an index of the base table, from their next flush on. A dry run only checks.

        Raises:
            InvalidRequestError: The index does not exist, or is the primary key's own. Correct the name.
            ConflictError: Other processes kept changing the table. Try again.
        """

        def change(state: TableState, details: MemWalIndexDetails) -> MemWalIndexDetails:
            changed = with_maintained_index(details, name)
            check_maintained(changed.maintained_indexes, self._table.indexes(state.version), state.primary_key)
            return changed

        return self._update(change, f"MemTables maintain index {name}", dry_run=dry_run)

    def release_index(self, name: str, *, dry_run: bool = False) -> ConfigureReport:
        """Stop MemTables from maintaining an index; the index of the base table stays. A dry run only checks.

        Raises:
            InvalidRequestError: They do not maintain it. Correct the name.
            ConflictError: Other processes kept changing the table. Try again.
        """

        def change(_: TableState, details: MemWalIndexDetails) -> MemWalIndexDetails:
            return without_maintained_index(details, name)

        return self._update(change, f"MemTables no longer maintain index {name}", dry_run=dry_run)

    def replace_index(
        self, old: str, new: str, *, readers_moved: bool = False, dry_run: bool = False
    ) -> ConfigureReport:
        """Remove an index once its successor is everywhere: the last step of a codebook migration.

        Before it, create the new index under another name, ``maintain_index`` it, and run merges and catch-ups
        until every flushed MemTable without it is merged.

        Args:
            old: The index that goes.
            new: Its successor, over the same columns.
            readers_moved: Confirm that all readers use the new index; nothing in the table can tell.
            dry_run: Only look for obstacles.

        Raises:
            ConflictError: The table changed meanwhile. Try again.
        """
        state = self._table.state()
        details = self._table.require_mem_wal(state)
        obstacles = replacement_obstacles(self._case(state, details, (old, new), readers_moved=readers_moved))
        what = f"index {old} gives way to {new}"
        if obstacles or dry_run:
            outcome = JobOutcome.BLOCKED if obstacles else JobOutcome.PLANNED
            return ConfigureReport(self._table.uri, outcome, what, state.version, obstacles)

        def without(found: MemWalIndexDetails) -> MemWalIndexDetails:
            if old in found.maintained_indexes:
                return without_maintained_index(found, old)
            entries = {name: entry for name, entry in found.index_catchup.items() if name != old}
            return replace(found, index_catchup=entries)

        self._check()
        version = remove_index(self._table, old, read=state, change=without)
        return ConfigureReport(self._table.uri, JobOutcome.DONE, what, version)

    def _case(
        self, state: TableState, details: MemWalIndexDetails, names: tuple[str, str], *, readers_moved: bool
    ) -> ReplacementCase:
        coverage = read_coverage(self._table, state.version)
        facts = {index.name: index for index in self._table.indexes(state.version)}
        old, new = (facts.get(name) for name in names)
        return ReplacementCase(
            old=coverage.named(names[0]),
            new=coverage.named(names[1]),
            same_columns=old is not None and new is not None and old.field_ids == new.field_ids,
            details=details,
            lacking=self._lacking(details, new) if new is not None else {},
            readers_moved=readers_moved,
        )

    def _lacking(self, details: MemWalIndexDetails, index: IndexFacts) -> Mapping[RegionId, tuple[int, ...]]:
        manifests = self._manifests.load_many(self._manifests.region_ids(), self._concurrency)
        found = map_concurrently(lambda each: self._lacking_in(each, details, index), manifests, self._concurrency)
        return {manifest.region_id: lacking for manifest, lacking in zip(manifests, found, strict=True) if lacking}

    def _lacking_in(self, manifest: RegionManifest, details: MemWalIndexDetails, index: IndexFacts) -> tuple[int, ...]:
        merged = details.merged_generation(manifest.region_id)
        return tuple(
            each.generation
            for each in manifest.flushed_generations
            if each.generation > merged and self._lacks(generation_path(manifest.region_id, each.path), index)
        )

    def _lacks(self, path: str, index: IndexFacts) -> bool:
        """Return whether a flushed MemTable has values in an index's columns but lacks the index."""
        uri = self._table.store.uri_of(path)
        self._table.store.require_files([path])
        with translated("read the indexes of a flushed MemTable", uri):
            dataset = lance.dataset(uri, storage_options=dict(self._table.storage_options) or None)
            if index.name in {each.name for each in dataset.describe_indices()}:
                return False
            names = {field.id(): field.name() for field in dataset.lance_schema.fields()}
            columns = [names[field_id] for field_id in index.field_ids if field_id in names]
            # A MemTable of tombstones has nothing to index.
            return any(has_values(dataset, column) for column in columns)

    def _update(
        self, change: Callable[[TableState, MemWalIndexDetails], MemWalIndexDetails], what: str, *, dry_run: bool
    ) -> ConfigureReport:
        state = self._table.state()
        before = state.version
        if dry_run:
            details = self._table.require_mem_wal(state)
            self._check()
            is_so = change(state, details) == details
            outcome = JobOutcome.NOTHING_TO_DO if is_so else JobOutcome.PLANNED
            return ConfigureReport(self._table.uri, outcome, what, before)

        def once(details: MemWalIndexDetails) -> MemWalIndexDetails:
            if details is not state.details:
                raise ConflictError(
                    "the table changed while its configuration was checked",
                    remedy="try again",
                    table=self._table.uri,
                    version=state.version,
                )
            return change(state, details)

        self._check()
        after = self._table.update_details(once, read=state, message=what)
        outcome = JobOutcome.DONE if after.version != before else JobOutcome.NOTHING_TO_DO
        return ConfigureReport(self._table.uri, outcome, what, after.version)

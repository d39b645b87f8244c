"""Carrying out changes of a table's configuration, each in one strict commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import lance

from memwal_core.base_table import BaseTable, IndexFacts, TableState, read_coverage, translated
from memwal_core.base_table.index_recipes import has_values
from memwal_core.base_table.index_removal import remove_index
from memwal_core.base_table.inventory import check_maintained
from memwal_core.errors import ConflictError
from memwal_core.ids import RegionId
from memwal_core.index import MemWalIndexDetails
from memwal_core.index.configure import with_maintained_index, with_region_spec, without_maintained_index
from memwal_core.maintenance.configure.replacement import ReplacementCase, replacement_obstacles
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.manifest import ManifestStore, RegionManifest
from memwal_core.region_spec import RegionSpec, validate_new_spec
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import generation_path


@dataclass(frozen=True, slots=True)
class ConfigureReport:
    """One change.

    Attributes:
        table_uri: The base table.
        outcome: ``done``; ``nothing_to_do`` if it was so already; ``planned`` if a dry run found no
            obstacle; ``blocked`` if something still needs what would go.
        change: What it is, one sentence.
        version: Version that has it, or that was looked at.
        obstacles: What keeps it from being done.
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
    """Changes of one table's configuration. Each keeps merge progress, catch-up and snapshots.

    Args:
        table: The base table.
        manifests: Its region manifests.
        concurrency: Requests under way at once.
    """

    def __init__(self, table: BaseTable, manifests: ManifestStore, concurrency: int) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._manifests = manifests
        self._concurrency = concurrency

    def add_region_spec(self, spec: RegionSpec) -> ConfigureReport:
        """Add a region spec; writers take it up with their next claim.

        Raises:
            InvalidRequestError: Its id is taken, or it does not fit the table.
            ConflictError: Others kept changing the table. Try again.
        """

        def change(state: TableState, details: MemWalIndexDetails) -> MemWalIndexDetails:
            fields = {field_id: state.schema.field(name) for name, field_id in state.field_ids.items()}
            validate_new_spec(spec, details.region_specs, fields, state.require_primary_key().field_ids)
            return with_region_spec(details, spec)

        return self._update(change, f"region spec {spec.spec_id} added")

    def maintain_index(self, name: str) -> ConfigureReport:
        """Let MemTables maintain an index of the base table, from their next flush on.

        Raises:
            InvalidRequestError: There is no such index, or it is the primary key's own.
            ConflictError: Others kept changing the table. Try again.
        """

        def change(state: TableState, details: MemWalIndexDetails) -> MemWalIndexDetails:
            changed = with_maintained_index(details, name)
            check_maintained(changed.maintained_indexes, self._table.indexes(state.version), state.primary_key)
            return changed

        return self._update(change, f"MemTables maintain index {name}")

    def release_index(self, name: str) -> ConfigureReport:
        """Let MemTables maintain an index no longer; the index of the base table stays.

        Raises:
            InvalidRequestError: They do not maintain it.
            ConflictError: Others kept changing the table. Try again.
        """
        return self._update(
            lambda _, details: without_maintained_index(details, name), f"MemTables no longer maintain index {name}"
        )

    def replace_index(
        self, old: str, new: str, *, readers_moved: bool = False, dry_run: bool = False
    ) -> ConfigureReport:
        """Remove an index once its successor is everywhere: the last step of a codebook migration.

        Before it: create the new index under another name, ``maintain_index`` it, and run merges and
        catch-ups until every flushed MemTable without it is merged.

        Args:
            old: The index that goes.
            new: Its successor, over the same columns.
            readers_moved: All readers use the new index; nothing in the table can tell.
            dry_run: Only look for obstacles.

        Raises:
            ConflictError: The table moved on meanwhile. Try again.
            UnavailableError: Storage failed. Try again.
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
        """Return whether a flushed MemTable has values of an index's columns but not the index."""
        uri = self._table.store.uri_of(path)
        with translated("look at the indexes of a flushed MemTable", uri):
            dataset = lance.dataset(uri, storage_options=dict(self._table.storage_options) or None)
            if index.name in {each.name for each in dataset.describe_indices()}:
                return False
            names = {field.id(): field.name() for field in dataset.lance_schema.fields()}
            columns = [names[field_id] for field_id in index.field_ids if field_id in names]
            # A MemTable of tombstones has nothing to index.
            return any(has_values(dataset, column) for column in columns)

    def _update(
        self, change: Callable[[TableState, MemWalIndexDetails], MemWalIndexDetails], what: str
    ) -> ConfigureReport:
        state = self._table.state()
        before = state.version

        def once(details: MemWalIndexDetails) -> MemWalIndexDetails:
            if details is not state.details:
                raise ConflictError(
                    "the table moved on while its configuration was checked",
                    remedy="try again",
                    table=self._table.uri,
                    version=state.version,
                )
            return change(state, details)

        after = self._table.update_details(once, read=state, message=what)
        outcome = JobOutcome.DONE if after.version != before else JobOutcome.NOTHING_TO_DO
        return ConfigureReport(self._table.uri, outcome, what, after.version)

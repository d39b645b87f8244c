"""Rows prepared in units of work, by this process or by executors: bounded memory, tombstones included.

Workers write winners as fragments and find the base rows that these supersede. The preparation stays useful
after a refusal: only fragments that changed are searched again.
"""

from __future__ import annotations

from dataclasses import replace

import lance

from memwal_core.base_table import TableState
from memwal_core.base_table.commit.row_changes import (
    BaseFragment,
    FragmentChange,
    count_repeated,
    list_fragments,
    update_operation,
)
from memwal_core.base_table.keys.choose_search import choose_search
from memwal_core.base_table.keys.search_plan import SearchChoice
from memwal_core.errors import CorruptionError
from memwal_core.format.paths import merge_staging_directory
from memwal_core.jobs.merge.commit.own_files import OwnFiles
from memwal_core.jobs.merge.commit.passes import (
    MERGE_SEARCHED,
    MERGE_WRITTEN,
    CommitContext,
    PreparedChange,
    ShareWatcher,
    repeated_keys,
    share_follows,
)
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.winners import region_tasks
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.jobs.merge.work.key_spans import key_spans
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.merge.work.units import SearchUnit, UnitBounds, WriteUnit, WrittenUnit, search_units, write_units
from memwal_core.jobs.merge.work.workers import MergeWorkers


class PreparedInUnits:
    """Prepares one plan with workers."""

    def __init__(
        self,
        context: CommitContext,
        workers: MergeWorkers,
        plan: MergePlan,
        state: TableState,
        watcher: ShareWatcher,
    ) -> None:
        table = context.table
        self._table = table
        self._workers = workers
        self._settings = context.settings
        self._failpoints = context.failpoints
        self._plan = plan
        self._watcher = watcher
        self._target = merge_target(state)
        self._id = table.ids.commit_id().hex()
        self._staging = merge_staging_directory(self._id)
        self._units: dict[int, WriteUnit] = {}
        self._written: dict[int, WrittenUnit] = {}
        self._found: dict[int, tuple[str, FragmentChange]] = {}
        self._keys_checked = False
        self._choice: SearchChoice | None = None
        self.files = OwnFiles(table, self._staging, is_staged=workers.stages)

    def read(self) -> None:
        """Write the winners as fragments."""
        settings, workers = self._settings, self._workers
        bounds = UnitBounds(settings.unit_bytes, settings.batch_bytes, workers.executors)
        units = write_units(self._plan, region_tasks(self._plan, self._target), bounds)
        self._units = {unit.number: unit for unit in units}
        for written in workers.write(units, self._staging):
            self._accept(written)
            for share in written.shares:
                self._watcher.read(share)
        self._failpoints.hit(MERGE_WRITTEN)

    def shares(self) -> tuple[MergeShare, ...]:
        """Return the shares of the units that are left."""
        return tuple(share for unit in self._written.values() for share in unit.shares)

    def follows(self, state: TableState) -> bool:
        """Tell whether the schema is the same and at least one unit still follows the progress."""
        return merge_target(state) == self._target and any(
            _unit_follows(unit, state) for unit in self._written.values()
        )

    def keep_what_follows(self, state: TableState) -> None:
        """Drop units of which a rival merged a region."""
        same_schema = merge_target(state) == self._target
        kept = {number: unit for number, unit in self._written.items() if same_schema and _unit_follows(unit, state)}
        if len(kept) < len(self._written):
            # With fewer keys, fragments without a hit stay without one; the rest must be searched again.
            self._found = {number: known for number, known in self._found.items() if not known[1].superseded}
            self._written = kept

    def change(self, state: TableState, attempt: int) -> PreparedChange:
        """Find what the units' keys supersede in a version."""
        self._rewrite_backfilled(state)
        dataset = self._table.dataset(state.version)
        changes = self._search(dataset, list_fragments(dataset), attempt)
        documents = [document for unit in self._written.values() for document in unit.documents]
        superseded = sum(change.superseded for change in changes.values())
        repeated = count_repeated(changes.values())
        if repeated:
            raise repeated_keys(self._table.uri, state.version, rows=superseded, keys=superseded - repeated)
        upserts = sum(unit.upserts for unit in self._written.values())
        operation = update_operation(dataset, changes.values(), documents)
        return PreparedChange(operation, superseded, upserts, self._choice)

    def _accept(self, written: WrittenUnit) -> None:
        self.files.add_unit(written)
        if not written.is_complete:
            raise CorruptionError(
                "the number of rows written differs from the number of winners",
                remedy="report this; nothing was committed",
                expected=written.upserts,
                unit=written.number,
            )
        self._written[written.number] = written

    def _rewrite_backfilled(self, state: TableState) -> None:
        """Rewrite units whose backfilled values come from another base version."""
        stale = [
            replace(self._units[number], version=state.version)
            for number, written in self._written.items()
            if self._units[number].inherits and written.version != state.version
        ]
        for written in self._workers.write(stale, self._staging) if stale else ():
            self._accept(written)

    def _search(
        self, dataset: lance.LanceDataset, fragments: tuple[BaseFragment, ...], attempt: int
    ) -> dict[int, FragmentChange]:
        """Return what becomes of each fragment, searching only those that are new or have changed."""
        known = {
            fragment.fragment_id: self._found[fragment.fragment_id]
            for fragment in fragments
            if self._found.get(fragment.fragment_id, ("", None))[0] == fragment.document
        }
        documents = {fragment.fragment_id: fragment.document for fragment in fragments}
        unknown = [fragment for fragment in fragments if fragment.fragment_id not in known]
        keys = tuple(unit.keys for unit in self._written.values())
        self._choice = choose_search(
            self._table,
            dataset,
            {fragment.fragment_id: fragment.physical_rows for fragment in unknown},
            self._target.key,
            lambda column: key_spans(keys, column),
            self._settings,
        )
        common = SearchUnit(
            version=dataset.version,
            fragments=(),
            keys=keys,
            key=self._target.key,
            key_bytes=self._settings.key_bytes,
            attempt=f"{self._id}-{attempt}",
            condition=self._choice.chosen.condition,
        )
        # Within a region the keys are distinct already.
        several = len(self.shares()) > 1
        units = search_units(unknown, common, self._workers.executors, checks_keys=several and not self._keys_checked)
        for change in self._workers.search(units):
            self.files.add_change(change)
            known[change.fragment_id] = documents[change.fragment_id], change
        self._keys_checked = True
        self._found = known
        self._failpoints.hit(MERGE_SEARCHED)
        return {number: change for number, (_, change) in known.items()}


def _unit_follows(unit: WrittenUnit, state: TableState) -> bool:
    details = state.require_details()
    return all(share_follows(share, details) for share in unit.shares)

"""Rows prepared in units of work, by this process or by executors: bounded memory, tombstones included.

In two stages, winners are written as fragments, with their keys kept or staged, and then the base rows that these
supersede are found and masked by deletion vectors. This process sees descriptions of files only, and it alone
commits. A repeated or speculative attempt of a task writes other fragments, which are removed at the end, and the same
deletion vectors, byte for byte, so nothing can be applied twice. The preparation stays useful after a refusal: only
fragments that changed are searched again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import lance

from memwal_core.base_table import TableState
from memwal_core.base_table.commit.row_changes import (
    BaseFragment,
    FragmentChange,
    count_repeated,
    describe_fragments,
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
from memwal_core.jobs.merge.work.tasks import find_superseded, write_winners
from memwal_core.jobs.merge.work.units import SearchUnit, UnitBounds, WriteUnit, WrittenUnit, search_units, write_units


class PreparedInUnits:
    """Prepares one plan in units."""

    def __init__(
        self,
        context: CommitContext,
        plan: MergePlan,
        state: TableState,
        watcher: ShareWatcher,
    ) -> None:
        table = context.table
        self._table = table
        self._sharing = context.sharing
        self._opened = context.opened
        self._settings = context.settings
        self._failpoints = context.failpoints
        self._plan = plan
        self._watcher = watcher
        self._target = merge_target(state)
        self._id = table.ids.commit_id().hex()
        staged = context.sharing.on_executors
        self._staging = merge_staging_directory(self._id) if staged else ""
        self._units: dict[int, WriteUnit] = {}
        self._written: dict[int, WrittenUnit] = {}
        self._found: dict[int, tuple[str, FragmentChange]] = {}
        self._keys_checked = False
        self._choice: SearchChoice | None = None
        self.files = OwnFiles(table, self._staging)

    def read(self) -> None:
        """Write the winners as fragments."""
        settings = self._settings
        bounds = UnitBounds(settings.unit_bytes, settings.batch_bytes, self._sharing.slots)
        units = write_units(self._plan, region_tasks(self._plan, self._target), bounds)
        self._units = {unit.number: unit for unit in units}
        for written in self._write(units):
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
        changes = self._search(dataset, describe_fragments(dataset), attempt)
        documents = [document for unit in self._written.values() for document in unit.documents]
        superseded = sum(change.superseded for change in changes.values())
        repeated = count_repeated(changes.values())
        if repeated:
            raise repeated_keys(self._table.uri, state.version, rows=superseded, keys=superseded - repeated)
        upserts = sum(unit.upserts for unit in self._written.values())
        operation = update_operation(dataset, changes.values(), documents)
        return PreparedChange(operation, superseded, upserts, self._choice)

    def _write(self, units: Sequence[WriteUnit]) -> Iterator[WrittenUnit]:
        return self._sharing.stream("write winners", partial(write_winners, self._opened, self._staging), units)

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
        for written in self._write(stale) if stale else ():
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
        units = search_units(unknown, common, self._sharing.slots, checks_keys=several and not self._keys_checked)
        task = partial(find_superseded, self._staging)
        for change in self._sharing.stream("find what they supersede", task, units):
            self.files.add_change(change)
            known[change.fragment_id] = documents[change.fragment_id], change
        self._keys_checked = True
        self._found = known
        self._failpoints.hit(MERGE_SEARCHED)
        return {number: change for number, (_, change) in known.items()}


def _unit_follows(unit: WrittenUnit, state: TableState) -> bool:
    details = state.require_details()
    return all(share_follows(share, details) for share in unit.shares)

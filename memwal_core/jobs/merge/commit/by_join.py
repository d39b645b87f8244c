"""Rows prepared with all of them in memory and without tombstones, by Lance's join or with an index on the key.

The fastest way for small merges into large tables. Everything is prepared again after a refusal.
"""

from __future__ import annotations

import lance
import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.base_table.commit.joined_upsert import prepare_upsert
from memwal_core.base_table.commit.row_changes import (
    BaseFragment,
    DeletionTarget,
    count_repeated,
    data_paths,
    describe_fragments,
    update_operation,
    write_rows,
)
from memwal_core.base_table.commit.superseding import KeyScan, supersede
from memwal_core.base_table.keys.choose_search import choose_search
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.keys.search_plan import SearchChoice
from memwal_core.base_table.keys.spans import spans_of
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import InternalError
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
from memwal_core.jobs.merge.read.winners import InProcessReader, MergeWinners, region_tasks
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.jobs.merge.work.search_base import keys_of_several_regions
from memwal_core.jobs.merge.work.share import MergeShare


class PreparedByJoin:
    """Prepares one plan with Lance's merge-insert."""

    def __init__(
        self,
        context: CommitContext,
        read: InProcessReader,
        plan: MergePlan,
        state: TableState,
        watcher: ShareWatcher,
    ) -> None:
        self._table = context.table
        self._failpoints = context.failpoints
        self._read = read
        self._plan = plan
        self._watcher = watcher
        self._target = merge_target(state)
        self._winners: list[MergeWinners] = []
        self._keys_checked = False
        self._settings = context.settings
        self._id = context.table.ids.commit_id().hex()
        self.files = OwnFiles(context.table)

    def read(self) -> None:
        """Read the winners into memory."""
        for winners in self._read(region_tasks(self._plan, self._target)):
            if winners.tombstones.num_rows:
                raise InternalError(
                    "generations have tombstones that were not planned for",
                    remedy="report this; nothing was written",
                    region_id=str(winners.region_id),
                )
            self._watcher.read(winners.share)
            self._winners.append(winners)
        self._failpoints.hit(MERGE_WRITTEN)

    def shares(self) -> tuple[MergeShare, ...]:
        """Return the shares of the regions that are left."""
        return tuple(each.share for each in self._winners)

    def follows(self, state: TableState) -> bool:
        """Tell whether the schema is the same and at least one region still follows the progress."""
        return any(self._following(state))

    def keep_what_follows(self, state: TableState) -> None:
        """Drop regions that a rival merged."""
        self._winners = self._following(state)

    def change(self, state: TableState, attempt: int) -> PreparedChange:
        """Write the rows, and find what they replace in a version."""
        rows = pa.concat_tables([each.upserts for each in self._winners])
        self._require_exclusive(rows)
        dataset = self._table.dataset(state.version)
        if not rows.num_rows:
            # Every key was put and deleted in memory: progress alone.
            return PreparedChange(update_operation(dataset, (), ()), 0, 0)
        fragments, key = describe_fragments(dataset), self._target.key
        choice = choose_search(
            self._table,
            dataset,
            {fragment.fragment_id: fragment.physical_rows for fragment in fragments},
            key,
            lambda column: spans_of(rows.column(column)),
            self._settings,
        )
        if choice.chosen.condition:
            return self._narrowed(dataset, fragments, rows, choice, attempt)
        prepared = prepare_upsert(dataset, rows, key)
        self.files.add_paths(prepared.paths)
        if prepared.inserted + prepared.updated != rows.num_rows:
            matched = rows.num_rows - prepared.inserted
            raise repeated_keys(self._table.uri, state.version, rows=prepared.updated, keys=matched)
        self._failpoints.hit(MERGE_SEARCHED)
        return PreparedChange(prepared.operation, prepared.updated, rows.num_rows, choice)

    def _narrowed(
        self,
        dataset: lance.LanceDataset,
        fragments: tuple[BaseFragment, ...],
        rows: pa.Table,
        choice: SearchChoice,
        attempt: int,
    ) -> PreparedChange:
        """Write the rows, and find what they replace with the help of an index instead of Lance's join."""
        documents = write_rows(dataset, rows.to_reader())
        self.files.add_paths([path for document in documents for path in data_paths(document)])
        scan = KeyScan(self._target.key, choice.chosen.condition, self._table.settings.storage.concurrency)
        target = DeletionTarget(self._table.store, f"{self._id}-{attempt}")
        search = KeySearch(rows.select(list(self._target.key)), self._target.key)
        changes = []
        for change in supersede(dataset, fragments, [search], scan, target):
            self.files.add_change(change)
            changes.append(change)
        superseded = sum(change.superseded for change in changes)
        repeated = count_repeated(changes)
        if repeated:
            raise repeated_keys(self._table.uri, dataset.version, rows=superseded, keys=superseded - repeated)
        self._failpoints.hit(MERGE_SEARCHED)
        return PreparedChange(update_operation(dataset, changes, documents), superseded, rows.num_rows, choice)

    def _following(self, state: TableState) -> list[MergeWinners]:
        if merge_target(state) != self._target:
            return []
        details = state.require_details()
        return [each for each in self._winners if share_follows(each.share, details)]

    def _require_exclusive(self, rows: pa.Table) -> None:
        """Check that no two regions wrote the same key; within a region the keys are distinct already."""
        if len(self._winners) > 1 and not self._keys_checked:
            repeated = rows.num_rows - len(last_row_per_key(rows, self._target.key))
            if repeated:
                raise keys_of_several_regions(repeated, self._target.key)
        self._keys_checked = True

"""The single-commit strategy: prepared fragments, deletion vectors and progress in one strict commit.

Workers write winners as fragments and find the base rows that these supersede; none of that is visible. Then
one compare-and-swap makes it the next version, for all regions or for none: at no moment are deletes done and
inserts not, and a rival that was first makes the commit fail. The preparation stays useful after a refusal:
only fragments that changed are searched again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from memwal_core.base_table import BaseTable, TableState
from memwal_core.base_table.commit.row_changes import (
    BaseFragment,
    FragmentChange,
    list_fragments,
    named_files,
    update_operation,
)
from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    DuplicateKeysError,
    MemwalError,
    ObjectNotFoundError,
)
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import merge_staging_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.commit.commit import MERGE_COMMIT, MERGE_COMMITTED, CommitOutcome, MergeCommit, back_off
from memwal_core.jobs.merge.commit.own_files import OwnFiles
from memwal_core.jobs.merge.commit.passes import PassCommit, ShareWatcher
from memwal_core.jobs.merge.decide.strategy import SINGLE_COMMIT
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.winners import region_tasks
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.jobs.merge.work.units import SearchUnit, UnitBounds, WriteUnit, WrittenUnit, search_units, write_units
from memwal_core.jobs.merge.work.workers import MergeWorkers
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.rng import Rng
from memwal_core.settings import MergeSettings

_log = logging.getLogger(__name__)

MERGE_WRITTEN = Failpoint("merge.written")
MERGE_SEARCHED = Failpoint("merge.searched")
MERGE_CLEANED = Failpoint("merge.cleaned")


@dataclass(frozen=True, slots=True)
class SingleCommitContext:
    """What the strategy works with.

    Attributes:
        guard: Called before each attempt to commit.
        failpoints: Hit at the places of a merge.
    """

    table: BaseTable
    workers: MergeWorkers
    settings: MergeSettings
    clock: Clock
    rng: Rng
    guard: CheckLease = no_lease
    failpoints: Failpoints = NO_FAILPOINTS


class SingleCommit:
    """Carries out a plan in one commit."""

    name = SINGLE_COMMIT

    def __init__(self, context: SingleCommitContext) -> None:
        self._context = context

    @property
    def executors(self) -> int:
        """Number of processes that work at once."""
        return self._context.workers.executors

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commit of a plan.

        After a ``CommitUnknownError`` all files stay, because the commit needs them if it landed; after any
        other error the prepared files that no version names are removed.
        """
        work = _Pass(self._context, plan, state, watcher)
        try:
            done, units = work.run()
        except CommitUnknownError:
            raise
        except MemwalError:
            work.files.remove_unneeded()
            raise
        leftovers = work.files.remove_unneeded(done.version if units else None)
        self._context.failpoints.hit(MERGE_CLEANED)
        yield PassCommit(done, tuple(share for unit in units for share in unit.shares), leftovers)


class _Pass:
    def __init__(self, context: SingleCommitContext, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> None:
        self._context = context
        self._table = context.table
        self._plan = plan
        self._state = state
        self._watcher = watcher
        self._target = merge_target(state)
        self._id = context.table.ids.commit_id().hex()
        self._staging = merge_staging_directory(self._id)
        self._units: dict[int, WriteUnit] = {}
        self._written: dict[int, WrittenUnit] = {}
        self._found: dict[int, tuple[str, FragmentChange]] = {}
        self._keys_checked = False
        self.files = OwnFiles(context.table, self._staging, is_staged=context.workers.stages)

    def run(self) -> tuple[MergeCommit, list[WrittenUnit]]:
        """Prepare, then try to commit until it succeeds, is pointless, or was tried often enough."""
        settings, state = self._context.settings, self._state
        self._prepare()
        for attempt in range(1, settings.max_attempts + 1):
            self._keep_what_follows(state)
            if not self._written:
                return MergeCommit(CommitOutcome.OVERTAKEN, state.version, attempt), []
            self._rewrite_backfilled(state)
            done = self._attempt(state, attempt)
            if done is not None:
                return done, list(self._written.values())
            # The newest version tells why: its progress decides between giving way and trying again.
            state = self._table.state()
            if attempt < settings.max_attempts and self._follows(state):
                back_off(self._context.clock, self._context.rng, attempt)
                state = self._table.state()
        if not self._follows(state):
            return MergeCommit(CommitOutcome.OVERTAKEN, state.version, settings.max_attempts), []
        raise ConflictError(
            "other writers of the base table won every attempt to commit this merge",
            remedy="merge again; if it repeats, run one merge of the table at a time",
            table=self._table.uri,
            attempts=settings.max_attempts,
            version=state.version,
        )

    def _prepare(self) -> None:
        settings, workers = self._context.settings, self._context.workers
        tasks = region_tasks(self._plan, self._target, split_deletes=False)
        bounds = UnitBounds(settings.unit_bytes, settings.batch_bytes, workers.executors)
        units = write_units(self._plan, tasks, bounds)
        self._units = {unit.number: unit for unit in units}
        for written in workers.write(units, self._staging):
            self._accept(written)
            for share in written.shares:
                self._watcher.read(share)
        self._context.failpoints.hit(MERGE_WRITTEN)

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

    def _follows(self, state: TableState) -> bool:
        """Tell whether the schema is the same and at least one unit still follows the progress."""
        return merge_target(state) == self._target and any(
            _unit_follows(unit, state.require_details()) for unit in self._written.values()
        )

    def _keep_what_follows(self, state: TableState) -> None:
        """Drop units that a rival made pointless; the next pass plans their regions again."""
        same_schema = merge_target(state) == self._target
        details = state.require_details()
        kept = {number: unit for number, unit in self._written.items() if same_schema and _unit_follows(unit, details)}
        if len(kept) < len(self._written):
            # With fewer keys, fragments without a hit stay without one; the rest must be searched again.
            self._found = {number: known for number, known in self._found.items() if not known[1].superseded}
            self._written = kept

    def _rewrite_backfilled(self, state: TableState) -> None:
        """Rewrite units whose backfilled values come from another base version."""
        stale = [
            replace(self._units[number], version=state.version)
            for number, written in self._written.items()
            if self._units[number].inherits and written.version != state.version
        ]
        for written in self._context.workers.write(stale, self._staging) if stale else ():
            self._accept(written)

    def _attempt(self, state: TableState, attempt: int) -> MergeCommit | None:
        """Try to commit onto a version; None if it was refused."""
        context, table = self._context, self._table
        dataset = table.dataset(state.version)
        changes = self._search(state, list_fragments(dataset), attempt)
        documents = [document for unit in self._written.values() for document in unit.documents]
        expected = self._expected_rows(state, changes)
        marks = {share.region_id: share.through for unit in self._written.values() for share in unit.shares}
        operation = update_operation(dataset, changes.values(), documents)
        context.guard()
        context.failpoints.hit(MERGE_COMMIT)
        settled = False
        try:
            version = table.strict_commit(operation, read=state, change=_advanced(marks), message=_message(marks))
        except ConflictError as error:
            _log.info("commit refused [table=%s, read_version=%d, reason=%s]", table.uri, state.version, error)
            return None
        except CommitUnknownError as error:
            landed = self._settle(state, marks, error)
            if landed is None:
                return None
            version, settled = landed, True
        context.failpoints.hit(MERGE_COMMITTED)
        if not settled:
            _check_rows(table.state(version), expected)
        return MergeCommit(CommitOutcome.COMMITTED, version, attempt, settled=settled)

    def _search(
        self, state: TableState, fragments: tuple[BaseFragment, ...], attempt: int
    ) -> dict[int, FragmentChange]:
        """Return what becomes of each fragment, searching only those that are new or have changed."""
        known = {
            fragment.fragment_id: self._found[fragment.fragment_id]
            for fragment in fragments
            if self._found.get(fragment.fragment_id, ("", None))[0] == fragment.document
        }
        documents = {fragment.fragment_id: fragment.document for fragment in fragments}
        common = SearchUnit(
            version=state.version,
            fragments=(),
            keys=tuple(unit.keys for unit in self._written.values()),
            key=self._target.key,
            key_bytes=self._context.settings.key_bytes,
            attempt=f"{self._id}-{attempt}",
        )
        unknown = [fragment for fragment in fragments if fragment.fragment_id not in known]
        workers = self._context.workers
        # Within a region the keys are distinct already.
        several = sum(len(unit.shares) for unit in self._written.values()) > 1
        units = search_units(unknown, common, workers.executors, checks_keys=several and not self._keys_checked)
        for change in workers.search(units):
            self.files.add_change(change)
            known[change.fragment_id] = documents[change.fragment_id], change
        self._keys_checked = True
        self._found = known
        self._context.failpoints.hit(MERGE_SEARCHED)
        return {number: change for number, (_, change) in known.items()}

    def _expected_rows(self, state: TableState, changes: Mapping[int, FragmentChange]) -> int:
        superseded = sum(change.superseded for change in changes.values())
        upserts = sum(unit.upserts for unit in self._written.values())
        touched = sum(unit.touched for unit in self._written.values())
        if superseded > touched:
            raise DuplicateKeysError(
                "keys occur more than once in the base table, because more rows than keys would be superseded",
                remedy="start no merge and no garbage collection; follow docs/runbooks/duplicate-keys.md",
                table=self._table.uri,
                version=state.version,
                rows=superseded,
                keys=touched,
            )
        return state.num_rows - superseded + upserts

    def _settle(self, state: TableState, marks: Mapping[RegionId, int], doubt: CommitUnknownError) -> int | None:
        """Find out whether a commit of unknown outcome landed: its version if so, None if it certainly did not."""
        table, version = self._table, state.version + 1
        try:
            newest = table.state()
            made = table.state(version)
            own = not self.files.paths.isdisjoint(named_files(table.dataset(version)))
        except ObjectNotFoundError:
            raise self._unknown(doubt) from doubt
        except MemwalError as error:
            raise self._unknown(doubt) from error
        if not own and not _reached(made, marks):
            return None
        if _reached(newest, marks):
            return version
        raise self._unknown(doubt) from doubt

    def _unknown(self, doubt: CommitUnknownError) -> CommitUnknownError:
        return CommitUnknownError(doubt.what, remedy=doubt.remedy, **{**doubt.facts, "leftovers": self.files.all()})


def _unit_follows(unit: WrittenUnit, details: MemWalIndexDetails) -> bool:
    return all(details.merged_generation(share.region_id) == share.merged for share in unit.shares)


def _reached(state: TableState, marks: Mapping[RegionId, int]) -> bool:
    details = state.details
    return details is not None and all(details.merged_generation(region) >= mark for region, mark in marks.items())


def _advanced(marks: Mapping[RegionId, int]) -> Callable[[MemWalIndexDetails], MemWalIndexDetails]:
    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        return replace(details, merged_generations=MappingProxyType({**details.merged_generations, **marks}))

    return change


def _message(marks: Mapping[RegionId, int]) -> str:
    return f"merge {len(marks)} regions"


def _check_rows(made: TableState, expected: int) -> None:
    """Check that a version has the number of rows that the merge should give it."""
    if made.num_rows != expected:
        raise CorruptionError(
            "the number of rows after a merge is not what it should be",
            remedy="stop all jobs of this table and restore the version before",
            version=made.version,
            expected=expected,
            found=made.num_rows,
        )

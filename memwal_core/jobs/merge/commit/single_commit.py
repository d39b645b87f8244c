"""Carrying out a plan: whichever way its rows are prepared, one strict commit makes them the next version.

Rows, tombstones and progress of all regions become visible together or not at all: at no moment are deletes done
and inserts not, and a rival that was first makes the commit fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from memwal_core.base_table import TableState
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, MemwalError, ObjectNotFoundError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.ids import RegionId
from memwal_core.jobs.context import back_off
from memwal_core.jobs.merge.commit.by_join import PreparedByJoin
from memwal_core.jobs.merge.commit.in_units import PreparedInUnits
from memwal_core.jobs.merge.commit.passes import (
    MERGE_CLEANED,
    MERGE_COMMIT,
    MERGE_COMMITTED,
    CommitContext,
    CommitOutcome,
    MergeCommit,
    PassCommit,
    Preparation,
    PreparedChange,
    ShareWatcher,
)
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.winners import InProcessReader
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.text import show_count

_log = logging.getLogger(__name__)


class SingleCommit:
    """Carries out plans, each in one commit. Correct whatever rivals do at the same time."""

    def __init__(self, context: CommitContext) -> None:
        self._context = context

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commit of a plan that was made on ``state``.

        After a ``CommitUnknownError`` all files stay, because the commit needs them if it landed, and
        ``facts["leftovers"]`` names them; read progress before trying again. After any other error the prepared files
        that no version names are removed. An ``ObjectNotFoundError`` means that a generation vanished: plan again.
        """
        work = _Pass(self._context, self._prepared(plan, state, watcher), state)
        try:
            done, shares = work.run()
        except CommitUnknownError:
            raise
        except MemwalError:
            work.files.remove_unneeded(work.landed)
            raise
        leftovers = work.files.remove_unneeded(work.landed)
        self._context.failpoints.hit(MERGE_CLEANED)
        yield PassCommit(done, shares, leftovers, work.made)

    def _prepared(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Preparation:
        context = self._context
        if plan.strategy.joined:
            read = InProcessReader(context.opened, context.table.settings.storage.concurrency)
            return PreparedByJoin(context, read, plan, state, watcher)
        return PreparedInUnits(replace(context, sharing=context.sharing.at(plan.place)), plan, state, watcher)


class _Pass:
    """One plan.

    Attributes:
        landed: The version that was made; its files stay, whatever happens afterwards.
        made: The same as it was read afterwards.
    """

    def __init__(self, context: CommitContext, prepared: Preparation, state: TableState) -> None:
        self._context = context
        self._table = context.table
        self._prepared = prepared
        self._state = state
        self.files = prepared.files
        self.landed: int | None = None
        self.made: TableState | None = None

    def run(self) -> tuple[MergeCommit, tuple[MergeShare, ...]]:
        """Prepare, then try to commit until it succeeds, is pointless, or was tried often enough."""
        settings, state = self._context.settings, self._state
        self._prepared.read()
        for attempt in range(1, settings.max_attempts + 1):
            self._prepared.keep_what_follows(state)
            shares = self._prepared.shares()
            if not shares:
                return MergeCommit(CommitOutcome.OVERTAKEN, state.version, attempt), ()
            done = self._attempt(state, attempt, shares)
            if done is not None:
                return done, shares
            # The newest version tells why: its progress decides between giving way and trying again.
            state = self._table.state()
            if attempt < settings.max_attempts and self._prepared.follows(state):
                back_off(self._context.clock, self._context.rng, attempt)
                state = self._table.state()
        if not self._prepared.follows(state):
            return MergeCommit(CommitOutcome.OVERTAKEN, state.version, settings.max_attempts), ()
        raise ConflictError(
            "other writers of the base table won every attempt to commit this merge",
            remedy="merge again; if it repeats, run one merge of the table at a time",
            table=self._table.uri,
            attempts=settings.max_attempts,
            version=state.version,
        )

    def _attempt(self, state: TableState, attempt: int, shares: tuple[MergeShare, ...]) -> MergeCommit | None:
        """Try to commit onto a version; None if it was refused."""
        context, table = self._context, self._table
        prepared = self._prepared.change(state, attempt)
        marks = {share.region_id: share.through for share in shares}
        context.guard()
        context.failpoints.hit(MERGE_COMMIT)
        settled = False
        try:
            self.made = table.strict_commit(
                prepared.operation, read=state, change=_advanced(marks), message=_message(marks)
            )
            self.landed = self.made.version
        except ConflictError as error:
            _log.info("commit refused [table=%s, read_version=%d, reason=%s]", table.uri, state.version, error)
            return None
        except CommitUnknownError as error:
            settled = self._settle(state, marks, error)
            if not settled:
                return None
            self.landed = state.version + 1
        context.failpoints.hit(MERGE_COMMITTED)
        if self.made is not None:
            _check_rows(self.made, state, prepared)
        return MergeCommit(CommitOutcome.COMMITTED, state.version + 1, attempt, settled, prepared.search)

    def _settle(self, state: TableState, marks: Mapping[RegionId, int], doubt: CommitUnknownError) -> bool:
        """Find out whether a commit of unknown outcome landed and is part of the table's history."""
        try:
            own = self._table.is_own_version(state.version + 1, doubt)
            newest = self._table.state() if own else None
        except ObjectNotFoundError:
            raise self._unknown(doubt) from doubt
        except MemwalError as error:
            raise self._unknown(doubt) from error
        if newest is None:
            return False
        if _reached(newest, marks):
            return True
        raise self._unknown(doubt) from doubt

    def _unknown(self, doubt: CommitUnknownError) -> CommitUnknownError:
        return CommitUnknownError(doubt.what, remedy=doubt.remedy, **{**doubt.facts, "leftovers": self.files.all()})


def _check_rows(made: TableState, state: TableState, prepared: PreparedChange) -> None:
    """Check that the version made has the number of rows that the merge should give it."""
    expected = state.num_rows - prepared.superseded + prepared.upserts
    if made.num_rows != expected:
        raise CorruptionError(
            "the number of rows after a merge is not what it should be",
            remedy="stop all jobs of this table and restore the version before",
            version=made.version,
            expected=expected,
            found=made.num_rows,
        )


def _reached(state: TableState, marks: Mapping[RegionId, int]) -> bool:
    details = state.details
    return details is not None and all(details.merged_generation(region) >= mark for region, mark in marks.items())


def _advanced(marks: Mapping[RegionId, int]) -> Callable[[MemWalIndexDetails], MemWalIndexDetails]:
    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        return replace(details, merged_generations=MappingProxyType({**details.merged_generations, **marks}))

    return change


def _message(marks: Mapping[RegionId, int]) -> str:
    return f"merge {show_count(len(marks), 'region')}"

"""Commit the winners of a pass: rows and merge progress, in steps that a crash cannot leave half done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from memwal_core.base_table import BaseTable, CommitResult, TableState
from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, ConflictError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.read.winners import MergeWinners
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.rng import Rng

_log = logging.getLogger(__name__)

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0

MERGE_COMMIT = Failpoint("merge.commit")
MERGE_DELETED = Failpoint("merge.deleted")
MERGE_COMMITTED = Failpoint("merge.committed")


class CommitOutcome(StrEnum):
    """How a commit ended."""

    COMMITTED = "committed"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """The end of a commit.

    Attributes:
        outcome: ``overtaken`` means that another merge was first, so that the winners no longer follow the table's
            progress (or schema) and none of them counts. Plan again.
        version: Newest table version seen.
        attempts: Tries, the successful one included.
        settled: The reply of the commit was lost, and reading back showed that it had landed.
    """

    outcome: CommitOutcome
    version: int
    attempts: int
    settled: bool = False


class CommitStrategy(Protocol):
    """A way to apply winners to the base table. Correct whatever rivals do at the same time."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    @property
    def split_deletes(self) -> bool:
        """Whether winners must come in segments (see ``read_region``)."""
        ...

    def commit(self, table: BaseTable, read_state: TableState, winners: Sequence[MergeWinners]) -> MergeCommit:
        """Apply winners, at most one segment per region, and record their progress: all or nothing.

        A ``ConflictError`` means that rivals won every attempt, an ``UnavailableError`` that nothing was
        committed, or all of it.
        """
        ...


def back_off(clock: Clock, rng: Rng, attempt: int) -> None:
    """Wait a random time that grows with the attempts, so that rivals do not meet again."""
    clock.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * rng.random())


class NativeCommit:
    """Lance's own merge-insert with progress marks.

    Without deletes, one marked pass. With deletes, an unmarked delete pass and then the marked upsert pass;
    Lance refuses each if a rival touched its rows after the version at which progress was checked. A crash
    between the two leaves the deletes without the mark: the generations are still listed and unmerged, so
    readers see no difference and a repeat heals it.

    Args:
        clock: Waits between attempts.
        rng: Spreads the waits of rivals.
        max_attempts: Tries against rivals before giving up.
        failpoints: Hit at the places of a commit.
        guard: Called before each attempt, so that a merger that lost its lease between two attempts
            does not win the second.
    """

    name = "native"
    split_deletes = True

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        max_attempts: int,
        failpoints: Failpoints = NO_FAILPOINTS,
        guard: CheckLease = no_lease,
    ) -> None:
        """Keep the parts."""
        self._failpoints = failpoints
        self._guard = guard
        self._clock = clock
        self._rng = rng
        self._max_attempts = max_attempts

    def commit(self, table: BaseTable, read_state: TableState, winners: Sequence[MergeWinners]) -> MergeCommit:
        """Apply winners of different regions and record their progress."""
        batch = _Batch.of(winners, read_state)
        state = read_state
        for attempt in range(1, self._max_attempts + 1):
            if not batch.follows(state):
                return MergeCommit(CommitOutcome.OVERTAKEN, state.version, attempt)
            self._guard()
            result = self._attempt(table, state, batch)
            if result is not None:
                return MergeCommit(CommitOutcome.COMMITTED, result.version, attempt, settled=result.settled)
            # The newest version tells why: its progress decides between giving way and trying again.
            state = table.state()
            if attempt < self._max_attempts and batch.follows(state):
                back_off(self._clock, self._rng, attempt)
                state = table.state()
        if not batch.follows(state):
            return MergeCommit(CommitOutcome.OVERTAKEN, state.version, self._max_attempts)
        raise ConflictError(
            "other writers of the base table won every attempt to commit this merge",
            remedy="merge again; if it repeats, run one merge of the table at a time",
            table=table.uri,
            attempts=self._max_attempts,
            version=state.version,
        )

    def _attempt(self, table: BaseTable, state: TableState, batch: _Batch) -> CommitResult | None:
        """Try once; None if it was refused, or if a rival's progress appeared between the passes."""
        try:
            result = self._apply(table, state, batch)
        except (ConflictError, CommitUnknownError) as error:
            # BaseTable settles a lost reply; unknown here means that the marks are not in the table.
            _log.info("commit refused [table=%s, read_version=%d, reason=%s]", table.uri, state.version, error)
            return None
        self._failpoints.hit(MERGE_COMMITTED)
        return result

    def _apply(self, table: BaseTable, state: TableState, batch: _Batch) -> CommitResult | None:
        """Run the passes; None if a rival's progress showed up between them."""
        self._failpoints.hit(MERGE_COMMIT)
        if not batch.tombstones.num_rows:
            return table.merge_upsert(batch.upserts, batch.marks, read_version=state.version)
        if not batch.upserts.num_rows:
            return table.merge_delete(batch.tombstones, read_version=state.version, marks=batch.marks)
        table.merge_delete(batch.tombstones, read_version=state.version)
        self._failpoints.hit(MERGE_DELETED)
        between = table.state()
        if not batch.follows(between):
            return None
        return table.merge_upsert(batch.upserts, batch.marks, read_version=between.version)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The winners of all regions of one commit, and the progress on which they are valid."""

    upserts: pa.Table
    tombstones: pa.Table
    merged: Mapping[RegionId, int]
    marks: Mapping[RegionId, int]
    schema: pa.Schema
    field_ids: Mapping[str, int]

    @classmethod
    def of(cls, winners: Sequence[MergeWinners], read_state: TableState) -> _Batch:
        return cls(
            upserts=pa.concat_tables([each.upserts for each in winners]),
            tombstones=pa.concat_tables([each.tombstones for each in winners]),
            merged={each.region_id: each.merged for each in winners},
            marks={each.region_id: each.through for each in winners},
            schema=read_state.schema,
            field_ids=read_state.field_ids,
        )

    def follows(self, state: TableState) -> bool:
        """Tell whether a version is exactly where the winners begin, in every region."""
        details = state.require_details()
        return (
            all(details.merged_generation(region) == merged for region, merged in self.merged.items())
            and dict(state.field_ids) == dict(self.field_ids)
            and state.schema.equals(self.schema)
        )

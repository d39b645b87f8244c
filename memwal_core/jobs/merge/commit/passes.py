"""Carry out one plan: the commits it takes, whichever way they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.commit.commit import CommitOutcome, CommitStrategy, MergeCommit
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.winners import MergeWinners, WinnerReader, region_tasks
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.outcome import CheckLease


class ShareWatcher(Protocol):
    """Receives what was read; must return quickly."""

    def read(self, share: MergeShare) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...


@dataclass(frozen=True, slots=True)
class PassCommit:
    """One commit of a pass.

    Attributes:
        shares: What it contains; none of it counts if it was overtaken.
        leftovers: Files of this pass, relative to the table, that no version needs and that could not be removed.
    """

    done: MergeCommit
    shares: tuple[MergeShare, ...]
    leftovers: tuple[str, ...] = ()


class PassStrategy(Protocol):
    """A way to carry out a plan. Correct whatever rivals do at the same time."""

    @property
    def name(self) -> str:
        """Name in plans and reports."""
        ...

    @property
    def executors(self) -> int:
        """Number of processes that work at once."""
        ...

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commits of a plan that was made on ``state``; one that is overtaken is the last.

        Commits that landed stand, whatever error follows. After a ``CommitUnknownError``, read progress before
        trying again; its ``facts["leftovers"]`` names files that the commit needs if it landed. An
        ``ObjectNotFoundError`` means that a generation vanished: plan again.
        """
        ...


class NativePass:
    """Reads the winners into memory, here or on executors, and lets a commit strategy apply them."""

    executors = 1

    def __init__(self, table: BaseTable, reader: WinnerReader, commit: CommitStrategy, guard: CheckLease) -> None:
        self._table = table
        self._reader = reader
        self._commit = commit
        self._guard = guard

    @property
    def name(self) -> str:
        """Name in plans and reports."""
        return self._commit.name

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commits of a plan."""
        tasks = region_tasks(plan, merge_target(state), split_deletes=self._commit.split_deletes)
        for winners in _rounds(_watched(self._reader(tasks), watcher)):
            self._guard()
            done = self._commit.commit(self._table, state, winners)
            yield PassCommit(done, tuple(each.share for each in winners))
            if done.outcome is CommitOutcome.OVERTAKEN:
                return
            state = self._table.state()


def _watched(winners: Iterable[MergeWinners], watcher: ShareWatcher) -> Iterator[MergeWinners]:
    for each in winners:
        watcher.read(each.share)
        yield each


def _rounds(winners: Iterable[MergeWinners]) -> Iterator[Sequence[MergeWinners]]:
    """Group segments into commits: the first of every region, then the second, and so on.

    Generations that lack columns go apart from the others, because one merge-insert has one schema.
    """
    by_region: dict[RegionId, list[MergeWinners]] = {}
    for each in winners:
        by_region.setdefault(each.region_id, []).append(each)
    for column in zip_longest(*by_region.values()):
        by_columns: dict[tuple[str, ...], list[MergeWinners]] = {}
        for each in column:
            if each is not None:
                by_columns.setdefault(tuple(each.upserts.column_names), []).append(each)
        yield from by_columns.values()

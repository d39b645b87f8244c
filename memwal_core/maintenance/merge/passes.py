"""Carrying out one plan: the commits it takes, whichever way they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.ids import RegionId
from memwal_core.maintenance.merge.commit import CommitOutcome, CommitStrategy, MergeCommit
from memwal_core.maintenance.merge.plan import MergePlan
from memwal_core.maintenance.merge.share import RegionShare
from memwal_core.maintenance.merge.sources import RegionWinners, WinnerReader, region_tasks
from memwal_core.maintenance.merge.survey import merge_target
from memwal_core.maintenance.outcome import CheckLease


class ShareWatcher(Protocol):
    """Is told what was read; must return quickly."""

    def read(self, share: RegionShare) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...


@dataclass(frozen=True, slots=True)
class PassCommit:
    """One commit of a pass.

    Attributes:
        done: How it ended.
        shares: What it contains; nothing of it counts if it was overtaken.
        leftovers: Files of this pass, relative to the table, that no version needs and that could
            not be removed.
    """

    done: MergeCommit
    shares: tuple[RegionShare, ...]
    leftovers: tuple[str, ...] = ()


class PassStrategy(Protocol):
    """A way to carry out a plan. Correct whatever rivals do at the same time."""

    @property
    def name(self) -> str:
        """Name in plans and reports."""
        ...

    @property
    def executors(self) -> int:
        """Processes that work at once."""
        ...

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commits of a plan; one that is overtaken is the last.

        Args:
            plan: What to merge.
            state: The base version it was planned on.
            watcher: Is told what was read.

        Raises:
            ConflictError: Rivals won every attempt. Try again later.
            CommitUnknownError: Read progress before trying again; ``facts["leftovers"]`` names
                files that the commit needs if it landed.
            ObjectNotFoundError: A generation vanished. Plan anew.
            UnavailableError: Storage failed. Try again; commits so far stand.
            CorruptionError: Stored state contradicts itself.
        """
        ...


class NativePass:
    """Reads the winners into memory and lets a commit strategy apply them.

    Args:
        table: The base table.
        reader: Reads the winners, here or on executors.
        commit: Applies them.
        guard: Called before each commit.
    """

    executors = 1

    def __init__(self, table: BaseTable, reader: WinnerReader, commit: CommitStrategy, guard: CheckLease) -> None:
        """Keep the parts."""
        self._table = table
        self._reader = reader
        self._commit = commit
        self._guard = guard

    @property
    def name(self) -> str:
        """Name in plans and reports."""
        return self._commit.name

    def carry_out(self, plan: MergePlan, state: TableState, watcher: ShareWatcher) -> Iterator[PassCommit]:
        """Make the commits of a plan.

        Raises:
            ConflictError: Rivals won every attempt.
            UnavailableError: Storage failed.
        """
        tasks = region_tasks(plan, merge_target(state), split_deletes=self._commit.split_deletes)
        for winners in _rounds(_watched(self._reader(tasks), watcher)):
            self._guard()
            done = self._commit.commit(self._table, state, winners)
            yield PassCommit(done, tuple(each.share for each in winners))
            if done.outcome is CommitOutcome.OVERTAKEN:
                return
            state = self._table.state()


def _watched(winners: Iterable[RegionWinners], watcher: ShareWatcher) -> Iterator[RegionWinners]:
    for each in winners:
        watcher.read(each.share)
        yield each


def _rounds(winners: Iterable[RegionWinners]) -> Iterator[Sequence[RegionWinners]]:
    """Group segments into commits: the first of every region, then the second, and so on.

    Generations that lack columns go apart from the others, since one merge-insert has one schema.
    """
    by_region: dict[RegionId, list[RegionWinners]] = {}
    for each in winners:
        by_region.setdefault(each.region_id, []).append(each)
    for column in zip_longest(*by_region.values()):
        by_columns: dict[tuple[str, ...], list[RegionWinners]] = {}
        for each in column:
            if each is not None:
                by_columns.setdefault(tuple(each.upserts.column_names), []).append(each)
        yield from by_columns.values()

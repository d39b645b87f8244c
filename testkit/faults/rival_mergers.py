"""Merge runs that stop at a chosen place or let a rival go first there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memwal_core.base_table import BaseTable, TableState
from memwal_core.clock import Clock
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.commit.passes import CommitContext
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.report import CommitReport, MergeReport
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.run import MergeContext, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.rng import Rng
from memwal_core.settings import MergeSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.rng import seeded_rng

Way = Literal["join", "units"]
"""How rows are prepared in one process: by Lance's join where it can, or never by it."""
WAYS: tuple[Way, ...] = ("join", "units")
_LARGE = 2**40


def prepared_by(way: Way, settings: MergeSettings | None = None) -> MergeSettings:
    """Return settings that prepare in this way, whatever the size."""
    return (settings or MergeSettings()).model_copy(update={"join_max_bytes": _LARGE if way == "join" else 0})


class NotedTable(BaseTable):
    """A base table that notes which versions its user looked at.

    Attributes:
        versions_read: Versions whose state was read, in order.
    """

    versions_read: list[int]

    def state(self, version: int | None = None) -> TableState:
        """Read a version and note it."""
        state = super().state(version)
        self.versions_read.append(state.version)
        return state


def noted_table(uri: str) -> NotedTable:
    """Open one."""
    table = NotedTable.open(uri)
    table.versions_read = []
    return table


class Silent:
    """Progress that is ignored."""

    def planned(self, plan: MergePlan) -> None:
        """Ignore it."""

    def read(self, share: MergeShare) -> None:
        """Ignore it."""

    def committed(self, commit: CommitReport) -> None:
        """Ignore it."""


@dataclass(slots=True)
class Merger:
    """One merger in a scripted race.

    Attributes:
        table: Its own view of the base table.
        settings: Bounds of its passes.
        failpoints: Hit at the places of a merge.
        clock: What it waits on; manual, so waits cost nothing.
        way: How rows are prepared.
    """

    table: BaseTable
    settings: MergeSettings = field(default_factory=MergeSettings)
    failpoints: Failpoints = NO_FAILPOINTS
    clock: Clock = field(default_factory=ManualClock)
    way: Way = "join"

    def run(self) -> MergeReport:
        """Merge until nothing is left, or until a failpoint raises."""
        table = self.table
        settings = prepared_by(self.way, self.settings)
        commit = commit_here(table, settings, self.clock, seeded_rng(1), self.failpoints)
        context = MergeContext(
            table=table,
            surveyor=MergeSurveyor(table, table.store, Table.open(table.uri).opened.manifests, concurrency=2),
            commit=SingleCommit(commit),
            settings=settings,
            clock=self.clock,
            progress=Silent(),
        )
        return merge(context)


def commit_here(
    table: BaseTable, settings: MergeSettings, clock: Clock, rng: Rng, failpoints: Failpoints
) -> CommitContext:
    """Return what carrying out plans in this process works with, without what a survey opened."""
    sharing = Sharing(JobContext(OpenTable.of(table)), Engine.LOCAL, MergeRequest())
    opened = OpenedGenerations(table.storage_options, most=0)
    return CommitContext(table, settings, clock, rng, sharing, opened, failpoints=failpoints)


def merge_until(
    uri: str, failpoints: Failpoints = NO_FAILPOINTS, *, max_generations: int = 256, way: Way = "join"
) -> MergeReport:
    """Run a merger with these failpoints."""
    settings = MergeSettings(max_generations=max_generations)
    return Merger(noted_table(uri), settings, failpoints, way=way).run()

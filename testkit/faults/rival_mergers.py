"""Merge runs that stop at a chosen place or let a rival go first there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from memwal_core.base_table import BaseTable, CommitResult, Retries, TableState
from memwal_core.clock import Clock
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.commit.commit import NativeCommit
from memwal_core.jobs.merge.commit.single_commit import SingleCommit, SingleCommitContext
from memwal_core.jobs.merge.read.winners import InProcessReader
from memwal_core.jobs.merge.report import MergeReport
from memwal_core.jobs.merge.run import MergeContext, Silent, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.merge.work.workers import InProcessWorkers
from memwal_core.rng import seeded_rng
from memwal_core.settings import MergeSettings
from memwal_core.table import Table
from testkit.clock import ManualClock


class WatchedTable(BaseTable):
    """A base table that notes which versions its user looked at, and can be interrupted.

    Attributes:
        versions_read: Versions whose state was read, in order.
        before_upsert: Called right before each upsert pass reaches Lance.
    """

    versions_read: list[int]
    before_upsert: Callable[[], None] | None = None

    def state(self, version: int | None = None) -> TableState:
        """Read a version and note it."""
        state = super().state(version)
        self.versions_read.append(state.version)
        return state

    def merge_upsert(
        self,
        rows: pa.Table,
        marks: Mapping[RegionId, int] | None = None,
        *,
        read_version: int | None = None,
        retries: Retries | None = None,
    ) -> CommitResult:
        """Let the interruption happen, then upsert."""
        if self.before_upsert is not None:
            self.before_upsert()
        return super().merge_upsert(rows, marks, read_version=read_version, retries=retries)


class UnsplitCommit(NativeCommit):
    """The native strategy without one of its safety rules, for negative controls."""

    split_deletes = False


def watched_table(uri: str) -> WatchedTable:
    """Open a watched table."""
    table = WatchedTable.open(uri)
    table.versions_read = []
    return table


@dataclass(slots=True)
class Merger:
    """One merger in a scripted race.

    Attributes:
        table: Its own view of the base table.
        settings: Bounds of its passes.
        failpoints: Hit by the strategy.
        strategy_type: Commit strategy of native passes.
        strategy: Which way passes are carried out.
        clock: What it waits on; manual, so waits cost nothing.
    """

    table: WatchedTable
    settings: MergeSettings = field(default_factory=MergeSettings)
    failpoints: Failpoints = NO_FAILPOINTS
    strategy_type: type[NativeCommit] = NativeCommit
    clock: Clock = field(default_factory=ManualClock)
    strategy: Literal["native", "single_commit"] = "native"

    def run(self) -> MergeReport:
        """Merge until nothing is left, or until a failpoint raises."""
        table = self.table
        settings = self.settings.model_copy(update={"strategy": self.strategy})
        context = MergeContext(
            table=table,
            surveyor=MergeSurveyor(table, table.store, Table.open(table.uri).opened.manifests, concurrency=2),
            reader=InProcessReader(table.storage_options),
            strategy=self.strategy_type(self.clock, seeded_rng(1), self.settings.max_attempts, self.failpoints),
            settings=settings,
            clock=self.clock,
            progress=Silent(),
            single_commit=SingleCommit(
                SingleCommitContext(
                    table=table,
                    workers=InProcessWorkers(table),
                    settings=settings,
                    clock=self.clock,
                    rng=seeded_rng(1),
                    failpoints=self.failpoints,
                )
            ),
        )
        return merge(context)


def merge_until(
    uri: str,
    failpoints: Failpoints = NO_FAILPOINTS,
    *,
    max_generations: int = 256,
    strategy: Literal["native", "single_commit"] = "native",
) -> MergeReport:
    """Run a merger with these failpoints."""
    settings = MergeSettings(max_generations=max_generations)
    return Merger(watched_table(uri), settings, failpoints, strategy=strategy).run()

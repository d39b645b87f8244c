"""What a merge did, for people and for machines: one JSON schema for every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from memwal_core.base_table.keys.search_plan import SearchChoice
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.strategy import StrategyChoice
from memwal_core.jobs.merge.decide.stuck import explain_stuck
from memwal_core.jobs.merge.decide.triggers import TriggerVerdict
from memwal_core.jobs.merge.plan import MergePlan, Verdict
from memwal_core.jobs.merge.read.suspects import SUSPECTS_FACT
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_bytes, show_count

PARKED_FACT = "parked"
"""Fact of a merge run: region -> which of its files are lost or damaged."""

MERGED_BYTES_FACT = "bytes"
"""Fact of a merge run: Arrow bytes of the generations that it took on."""


@dataclass(frozen=True, slots=True)
class CommitReport:
    """One commit of this run.

    Attributes:
        marks: Region -> progress it recorded.
        rows_read: Rows of the generations, older duplicates included.
        upserts: Rows written.
        tombstones: Keys deleted, whether or not the base table had them.
        attempts: Tries, the successful one included.
        settled: The reply was lost and the commit was found by reading back.
        search: How the base rows that it replaces were found, and what other ways would have read; None if nothing
            was to be found.
    """

    version: int
    place: Workplace
    strategy: StrategyChoice
    marks: dict[RegionId, int]
    rows_read: int
    upserts: int
    tombstones: int
    attempts: int
    settled: bool
    seconds: float
    search: SearchChoice | None = None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "version": self.version,
            **place_facts(self.place),
            "strategy": self.strategy.to_dict(),
            "marks": {str(region): generation for region, generation in self.marks.items()},
            "rows_read": self.rows_read,
            "upserts": self.upserts,
            "tombstones": self.tombstones,
            "attempts": self.attempts,
            "settled": self.settled,
            "seconds": round(self.seconds, 6),
            "search": self.search.to_dict() if self.search is not None else None,
        }


@dataclass(frozen=True, slots=True)
class RegionReport:
    """What became of one region.

    Attributes:
        merged_before: Progress when the run began.
        merged_here: Generations that this run merged.
        waiting: Recorded generations above the progress, also those that only a person can let go on.
    """

    region_id: RegionId
    merged_before: int
    merged_after: int
    merged_here: int
    waiting: int
    verdict: Verdict
    evidence: str

    @property
    def is_calm(self) -> bool:
        """Whether nothing was, is or may be merged."""
        return self.verdict is Verdict.NOTHING_TO_MERGE and not self.merged_here and not self.waiting

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "merged_before": self.merged_before,
            "merged_after": self.merged_after,
            "merged_here": self.merged_here,
            "waiting": self.waiting,
            "verdict": self.verdict.value,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The whole run.

    Attributes:
        place: Where the last pass was prepared that was carried out, else the place of the plan.
        strategy: How it was prepared.
        version_before: Base version of the first plan.
        version_after: Newest base version seen.
        bytes_planned: Arrow bytes of the generations read, over all passes.
        overtaken: Commits given up because another merger was first.
        commits: In order.
        regions: One per region, ordered by id.
        plan: The last plan; of a dry run, the one that a run would execute first.
        reason: Why a conflict ended the run; empty otherwise.
        leftovers: Files, relative to the table, that this run wrote and could not remove. No version
            needs them, unless ``reason`` says that it is not known whether a commit landed.
        suspects: Directories of flushed MemTables that the next run decodes elsewhere before it reads them.
        triggers: Region -> whether it is due, and how far each trigger is from firing; of dry runs, and
            of runs that take only what is due.
    """

    table_uri: str
    outcome: JobOutcome
    place: Workplace
    strategy: StrategyChoice
    version_before: int
    version_after: int
    passes: int
    bytes_planned: int
    overtaken: int
    commits: tuple[CommitReport, ...]
    regions: tuple[RegionReport, ...]
    plan: MergePlan
    seconds: float
    reason: str = ""
    leftovers: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    triggers: Mapping[RegionId, TriggerVerdict] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def generations(self) -> int:
        """Generations that this run merged."""
        return sum(region.merged_here for region in self.regions)

    @property
    def searches(self) -> tuple[SearchChoice, ...]:
        """How the commits found what they replace."""
        return tuple(commit.search for commit in self.commits if commit.search is not None)

    @property
    def _is_plan(self) -> bool:
        """Whether nothing was done yet; a dry run that finds a blocked region ends as the run would, too."""
        return self.outcome is JobOutcome.PLANNED or (not self.commits and self.plan.generations > 0)

    def why(self) -> str:
        """Say how many generations were merged or, by a dry run, would be, and why some cannot be."""
        if self.reason:
            return self.reason
        if self.outcome is JobOutcome.NOTHING_TO_DO:
            return self._unaudited() or "every flushed MemTable is merged"
        merged = f"{show_count(self.generations, 'generation')} merged in {show_count(len(self.commits), 'commit')}"
        if self._is_plan:
            taken = sum(bool(each.take) for each in self.plan.regions)
            merged = f"{show_count(self.plan.generations, 'generation')} of {show_count(taken, 'region')} can be merged"
        merged = "; ".join(filter(None, (merged, self._unaudited())))
        if not self.plan.stuck:
            return merged
        first = self.plan.stuck[0]
        stuck = len(self.plan.stuck)
        held = f"{show_count(stuck, 'region')} {'is' if stuck == 1 else 'are'} stuck"
        return f"{merged}; {held}, first {first.region_id}: {first.verdict.value}"

    def _unaudited(self) -> str:
        regions = self.plan.unaudited
        if not regions:
            return ""
        waiting = sum(region.waiting for region in regions)
        return (
            f"{show_count(waiting, 'flushed MemTable')} of {show_count(len(regions), 'region')} "
            f"{'waits' if waiting == 1 else 'wait'} for the next audit: {regions[0].evidence}"
        )

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "version": self.version_after,
            "generations": self.generations,
            "commits": len(self.commits),
            MERGED_BYTES_FACT: self.bytes_planned,
            "rows": sum(commit.upserts for commit in self.commits),
            **place_facts(self.place),
            "strategy": self.strategy.to_dict(),
            "search": self.searches[-1].to_dict() if self.searches else None,
            "progress": {str(each.region_id): each.merged_after for each in self.regions if each.merged_here},
            SUSPECTS_FACT: list(self.suspects),
            PARKED_FACT: {str(region_id): evidence for region_id, evidence in self.plan.parked.items()},
        }

    def view(self) -> ReportView:
        """Return a line about the run, one per region that has or had something to merge, and how many have not."""
        planned = self._is_plan
        columns: tuple[str, ...] = ("region", "merged", "takes" if planned else "here", "waiting", "why")
        calm = {each.region_id for each in self.regions if each.is_calm}
        shown = [each for each in self.regions if each.region_id not in calm]
        taken = {each.region_id: len(each.take) for each in self.plan.regions}
        rows = tuple(self._row(each, taken[each.region_id] if planned else each.merged_here) for each in shown)
        if self.triggers:
            columns += ("due",)
            due = (self.triggers.get(region.region_id) for region in shown)
            rows = tuple((*row, each.reason if each is not None else "") for row, each in zip(rows, due, strict=True))
        searches = dict.fromkeys(f"search: {search.reason}" for search in self.searches)
        others = [f"nothing to merge in {show_count(len(calm), 'region')}"] if calm else []
        places = place_lines(self.place) if self.commits or self.plan.marks else ()
        stuck = explain_stuck(self.table_uri, self.plan)
        following = (f"next: {stuck.remedy}",) if stuck is not None else ()
        notes = (*others, *searches, *((self.reason,) if self.reason else ()), *places, *following)
        return ReportView(self._headline(), (Grid(columns, rows),) if rows else (), notes)

    def _row(self, region: RegionReport, taken: int) -> tuple[str, ...]:
        before, after = region.merged_before, region.merged_after
        return (
            str(region.region_id),
            str(after) if before == after else f"{before} -> {after}",
            str(taken),
            str(region.waiting),
            f"{region.verdict.value}: {region.evidence}" if region.evidence else region.verdict.value,
        )

    def _headline(self) -> str:
        if self._is_plan:
            size = show_bytes(self.plan.size_bytes)
            taken = show_count(self.plan.generations, "generation")
            return f"would merge {taken}, {size}, on version {self.plan.version}"
        upserts = sum(commit.upserts for commit in self.commits)
        tombstones = sum(commit.tombstones for commit in self.commits)
        return (
            f"{show_words(self.outcome.value)}: {show_count(self.generations, 'generation')} in "
            f"{show_count(len(self.commits), 'commit')}, {show_count(upserts, 'row')} written, "
            f"{show_count(tombstones, 'key')} deleted, {show_bytes(self.bytes_planned)} read, "
            f"version {self.version_before} -> {self.version_after}, {self.seconds:.2f} s"
        )

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "merge",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "reason": self.reason,
            **place_facts(self.place),
            "strategy": self.strategy.to_dict(),
            "version_before": self.version_before,
            "version_after": self.version_after,
            "passes": self.passes,
            "overtaken": self.overtaken,
            "leftovers": list(self.leftovers),
            "generations": self.generations,
            "bytes_planned": self.bytes_planned,
            "rows_read": sum(commit.rows_read for commit in self.commits),
            "upserts": sum(commit.upserts for commit in self.commits),
            "tombstones": sum(commit.tombstones for commit in self.commits),
            "commits": [commit.to_dict() for commit in self.commits],
            "regions": [region.to_dict() for region in self.regions],
            "triggers": {str(region): verdict.to_dict() for region, verdict in self.triggers.items()},
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
        }

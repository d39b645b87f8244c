"""What an index catch-up did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memwal_core.jobs.catchup.plan import CatchupPlan, CatchupVerdict
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count


class IndexResult(StrEnum):
    """What became of one index in one run."""

    NONE = "none"
    EXTENDED = "extended"
    RECORDED = "recorded"
    CONFLICT = "conflict"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One index.

    Attributes:
        kind: What Lance calls its type; empty if it does not exist.
        rows_indexed: Rows that were unindexed when the extension began.
        caught_up_through: Region (as text) -> generation recorded now.
        regions_behind: Regions whose catch-up is below merge progress now.
        reason: Why it failed; empty otherwise.
    """

    name: str
    kind: str
    verdict: CatchupVerdict
    result: IndexResult
    rows_indexed: int
    caught_up_through: dict[str, int]
    regions_behind: int
    segments: int
    attempts: int
    seconds: float
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "index": self.name,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "result": self.result.value,
            "rows_indexed": self.rows_indexed,
            "caught_up_through": dict(self.caught_up_through),
            "regions_behind": self.regions_behind,
            "segments": self.segments,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 6),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class CatchupReport:
    """The whole run.

    Attributes:
        version_before: Table version of the first plan.
        version_after: Newest table version seen.
        indexes: One per index, ordered by name.
        plan: The first plan; of a dry run, the one that a run would execute.
        reason: Why a conflict ended it; empty otherwise.
        place: Where segments were built, and why there; None if nothing was to choose.
    """

    table_uri: str
    outcome: JobOutcome
    version_before: int
    version_after: int
    indexes: tuple[IndexReport, ...]
    plan: CatchupPlan
    seconds: float
    reason: str = ""
    place: Workplace | None = None

    def why(self) -> str:
        """Say how many indexes were brought up, and which are behind."""
        failed = "; ".join(f"{index.name}: {index.reason}" for index in self.indexes if index.reason)
        if self.reason or failed:
            return self.reason or failed
        moved = [each for each in self.indexes if each.result in {IndexResult.EXTENDED, IndexResult.RECORDED}]
        behind = [each.name for each in self.indexes if each.regions_behind]
        brought_up = f"{len(moved)} of {len(self.indexes)} indexes brought up"
        return f"{brought_up}; behind: {', '.join(behind)}" if behind else brought_up

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        rows = sum(index.rows_indexed for index in self.indexes)
        names = [index.name for index in self.indexes]
        return {"version": self.version_after, "rows": rows, "indexes": names, **place_facts(self.place)}

    def view(self) -> ReportView:
        """Return a line about the run, and one per index."""
        planned = self.outcome is JobOutcome.PLANNED
        rows = sum(index.rows_indexed for index in self.indexes)
        headline = (
            f"catch-up {show_words(self.outcome.value)}: {show_count(rows, 'row')} indexed, "
            f"version {self.version_before} -> {self.version_after}, {self.seconds:.2f} s"
        )
        columns = ("index", "kind", "unindexed rows" if planned else "rows indexed", "segments", "behind", "why")
        unindexed = {plan.name: plan.unindexed_rows for plan in self.plan.indexes}
        grid = Grid(
            columns,
            tuple(
                (
                    each.name,
                    each.kind,
                    f"{unindexed.get(each.name, 0) if planned else each.rows_indexed:,}",
                    str(each.segments),
                    show_count(each.regions_behind, "region"),
                    each.verdict.value if planned else f"{each.result.value}: {each.reason or each.verdict.value}",
                )
                for each in self.indexes
            ),
        )
        return ReportView(headline, (grid,), (*((self.reason,) if self.reason else ()), *place_lines(self.place)))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "catchup",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "indexes": [index.to_dict() for index in self.indexes],
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
            **place_facts(self.place),
        }

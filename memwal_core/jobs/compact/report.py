"""What a compaction did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.jobs.catchup.report import CatchupReport
from memwal_core.jobs.compact.cleanup import CleanupReport
from memwal_core.jobs.compact.plan import CompactPlan
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.view import ReportView, show_words
from memwal_core.text import show_bytes, show_count


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """One commit of this run.

    Attributes:
        fragments_removed: Fragments that were rewritten.
        rows: Live rows of the table, the same before and after.
        attempts: Tries, the successful one included.
    """

    version: int
    fragments_removed: int
    fragments_added: int
    rows: int
    attempts: int
    seconds: float

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "version": self.version,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "rows": self.rows,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The whole run.

    Attributes:
        version_before: Table version of the first plan.
        version_after: Newest table version seen.
        fragments_before: Fragments of the first version.
        fragments_after: Fragments of the last one.
        rewrites: Commits, in order.
        catchup_before: Catch-up that made the indexes cover all fragments alike; None if none ran.
        catchup_after: Catch-up that recorded again what the rewrite made Lance forget; None if
            nothing was rewritten.
        cleanup: Removal of old versions; None if it was not asked for.
        plan: The first plan; of a dry run, the one that a run would execute first.
        reason: Why it ended early; empty otherwise.
        place: Where fragments were rewritten, and why there; None if nothing was to choose.
    """

    table_uri: str
    outcome: JobOutcome
    version_before: int
    version_after: int
    fragments_before: int
    fragments_after: int
    rewrites: tuple[RewriteReport, ...]
    catchup_before: CatchupReport | None
    catchup_after: CatchupReport | None
    cleanup: CleanupReport | None
    plan: CompactPlan
    seconds: float
    reason: str = ""
    place: Workplace | None = None

    def why(self) -> str:
        """Say how many fragments became how many, and which versions went if that was asked for."""
        counts = f"{self.fragments_before} -> {show_count(self.fragments_after, 'fragment')}"
        rewritten = self.reason or f"{counts}: {self.plan.verdict.value}"
        return f"{rewritten}; {self._versions(self.cleanup)}" if self.cleanup is not None else rewritten

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "version": self.version_after,
            "rewrites": len(self.rewrites),
            "fragments_before": self.fragments_before,
            "fragments_after": self.fragments_after,
            **place_facts(self.place),
        }

    def view(self) -> ReportView:
        """Return a line about the run, its catch-up, and the versions that went."""
        after = self.catchup_after.view() if self.catchup_after is not None else None
        notes = [f"why: {self.reason or self.plan.verdict.value}"]
        if after is not None:
            notes.append(after.headline)
        if self.cleanup is not None:
            notes.append(self._versions(self.cleanup))
        notes += place_lines(self.place)
        return ReportView(self._headline(), after.grids if after is not None else (), tuple(notes))

    def _versions(self, cleanup: CleanupReport) -> str:
        kept = ", ".join(f"{count} {why}" for why, count in cleanup.plan.counts().items())
        removed = "would remove" if self.outcome is JobOutcome.PLANNED else "removed"
        freed = f"{show_count(cleanup.result.versions, 'version')} and {show_bytes(cleanup.result.size_bytes)}"
        return f"{removed} {freed}; kept {kept or 'none'}"

    def _headline(self) -> str:
        plan = self.plan
        if self.outcome is JobOutcome.PLANNED and plan.take:
            return (
                f"would rewrite {len(plan.take)} of {plan.fragments} fragments in the first pass, "
                f"{show_count(plan.rows, 'row')}, {show_bytes(plan.size_bytes)}, on version {plan.version}"
            )
        rewritten = f"{self.fragments_before} -> {show_count(self.fragments_after, 'fragment')}"
        return (
            f"{show_words(self.outcome.value)}: {rewritten} in {show_count(len(self.rewrites), 'commit')}, "
            f"version {self.version_before} -> {self.version_after}, {self.seconds:.2f} s"
        )

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "compact",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "fragments_before": self.fragments_before,
            "fragments_after": self.fragments_after,
            "rewrites": [rewrite.to_dict() for rewrite in self.rewrites],
            "catchup_before": None if self.catchup_before is None else self.catchup_before.to_dict(),
            "catchup_after": None if self.catchup_after is None else self.catchup_after.to_dict(),
            "cleanup": None if self.cleanup is None else self.cleanup.to_dict(),
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
            **place_facts(self.place),
        }

"""What a verification found, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.verify.facts import DUPLICATES_FACT, MERGED_FACT
from memwal_core.jobs.verify.plan import VerifyPlan
from memwal_core.jobs.view import ReportView, show_words
from memwal_core.text import show_bytes, show_count


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A verification that found every key once, or only planned to look.

    Attributes:
        outcome: ``done`` if every key occurs once, ``nothing_to_do`` if none is to be counted.
        plan: What was to be read.
        keys: Distinct keys that were found, as many as rows.
        place: Where keys were counted, and why there; None if there was nothing to count.
    """

    outcome: JobOutcome
    plan: VerifyPlan
    keys: int
    seconds: float
    place: Workplace | None = None

    @property
    def table_uri(self) -> str:
        """The table."""
        return self.plan.table_uri

    def why(self) -> str:
        """Say what was found, or what would be read."""
        if self.outcome is JobOutcome.NOTHING_TO_DO:
            return self.plan.undue
        if self.outcome is JobOutcome.PLANNED:
            return f"{show_count(self.plan.rows, 'key')} to count, about {show_bytes(self.plan.work.size_bytes)}"
        return f"{show_count(self.keys, 'row')}, every key once"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        found = (
            {"rows": self.keys, DUPLICATES_FACT: 0, MERGED_FACT: self.plan.merged}
            if self.outcome is JobOutcome.DONE
            else {}
        )
        return {"version": self.plan.version, **found, **place_facts(self.place)}

    def view(self) -> ReportView:
        """Return one line about the result, and where it was found."""
        headline = f"{show_words(self.outcome.value)}: version {self.plan.version}: {self.why()}, {self.seconds:.2f} s"
        return ReportView(headline, notes=place_lines(self.place))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "verify",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "keys": self.keys,
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
            **place_facts(self.place),
        }

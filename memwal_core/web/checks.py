"""What the page shows of data quality: the newest results of each stage, and what is quarantined. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memwal_core.format.document import as_moment, as_number, as_text
from memwal_core.quality.model import Result, Stage
from memwal_core.region.quarantine import Quarantined
from memwal_core.web.show import words

_TITLES = {Stage.BEFORE: "Audit before a merge", Stage.AFTER: "Checks after a merge"}


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """One check.

    Attributes:
        result: ``passed``, ``failed`` or ``skipped``.
    """

    name: str
    result: str
    subject: str
    evidence: str


@dataclass(frozen=True, slots=True)
class StageResults:
    """The newest run of one stage.

    Attributes:
        age_s: Seconds since it ended; None if the report does not say.
        docs: Where its Data Docs are; empty if none were written.
        checks: What failed first.
    """

    stage: Stage
    title: str
    ran: bool
    readable: bool
    version: int
    age_s: float | None
    docs: str
    checks: tuple[ShownCheck, ...]

    @property
    def failed(self) -> int:
        """Checks that failed; a report that cannot be read counts as one."""
        return sum(check.result == Result.FAILED.value for check in self.checks) + (self.ran and not self.readable)

    @property
    def summary(self) -> str:
        """One line."""
        if not self.ran:
            return "never ran"
        if not self.readable:
            return "its report cannot be read"
        if self.failed:
            return f"{self.failed} of {len(self.checks)} failed"
        skipped = sum(check.result == Result.SKIPPED.value for check in self.checks)
        return f"{len(self.checks) - skipped} passed" + (f", {skipped} skipped" if skipped else "")


@dataclass(frozen=True, slots=True)
class QualityView:
    """Data quality of one table.

    Attributes:
        quarantine: Flushed MemTables that no merge takes on, with the reasons.
    """

    before: StageResults
    after: StageResults
    quarantine: tuple[Quarantined, ...] = ()

    @property
    def summary(self) -> str:
        """One line for the list of tables."""
        if not self.before.ran and not self.after.ran and not self.quarantine:
            return "never checked"
        failed = self.before.failed + self.after.failed
        checks = f"{failed} failed" if failed else "passed"
        return f"{checks}, {len(self.quarantine)} quarantined" if self.quarantine else checks


def show_stage(stage: Stage, report: Mapping[str, Any] | None, now: datetime) -> StageResults:
    """Return what is shown of a stage.

    Args:
        stage: Which.
        report: Its newest report as it is stored; None if it never ran.
        now: For its age.
    """
    title = _TITLES[stage]
    if report is None:
        return StageResults(stage, title, False, True, 0, None, "", ())
    try:
        checks = [
            ShownCheck(
                words(as_text(each["check"])),
                as_text(each["result"]),
                as_text(each["subject"]),
                as_text(each["evidence"]),
            )
            for each in report["results"]
        ]
        version, docs = as_number(report["version"]), as_text(report["docs"])
        age_s = max(0.0, (now - as_moment(report["ended_at"])).total_seconds())
    except (KeyError, TypeError, ValueError):
        return StageResults(stage, title, True, False, 0, None, "", ())
    checks.sort(key=lambda check: check.result != Result.FAILED.value)
    return StageResults(stage, title, True, True, version, age_s, docs, tuple(checks))

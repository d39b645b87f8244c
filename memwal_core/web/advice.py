"""What to tell people of a table first, and the one thing to do about it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType

from memwal_core.errors import MemwalError
from memwal_core.observe.findings import Finding, Severity
from memwal_core.observe.health import Health
from memwal_core.text import show_count as count
from memwal_core.web.sentences import Runs, sentence_of
from memwal_core.web.show import age, as_sentence, short_ids, size


class FleetState(StrEnum):
    """How a table stands in the fleet, the worst first."""

    UNKNOWN = "unknown"
    FROZEN = "frozen"
    ATTENTION = "attention"
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a button does.

    Attributes:
        dag: The DAG whose form it opens; empty if no DAG does it.
        filled: What the form is filled in with, beside the table.
        regions: The region that the form is filled in with, if any.
        command: What a person types instead; empty if nothing.
        place: Where on the table's page it leads if it opens no form.
    """

    label: str
    dag: str = ""
    filled: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    regions: tuple[str, ...] = ()
    command: str = ""
    place: str = "next"


@dataclass(frozen=True, slots=True)
class Advice:
    """What is told of a table first.

    Attributes:
        colour: ``good``, ``fair``, ``bad``, or ``unknown``: that of its worst signal.
        action: What to do; None if nothing is to be done.
        remedy: The same in the words of the finding.
        runbook: Name of the page that tells more; empty if there is none.
        finding: What it is about; None if nothing is wrong, or nothing is known.
    """

    state: FleetState
    colour: str
    sentence: str
    action: NextStep | None = None
    remedy: str = ""
    runbook: str = ""
    finding: Finding | None = None


def _merge(finding: Finding) -> NextStep:
    return NextStep("Merge…", "memwal_merge", regions=_regions(finding))


def _regions(finding: Finding) -> tuple[str, ...]:
    return (str(finding.region_id),) if finding.region_id is not None else ()


_RUNS = NextStep("See its runs", place="timeline")
_CHECKS = NextStep("See the checks", place="quality")

_ACTIONS = MappingProxyType(
    {
        # Rows may be wrong, or nothing works: first.
        "table-frozen": None,
        "region-frozen": None,
        "record-unreadable": None,
        "table-unreadable": None,
        "table-moved": None,
        "index-gone": None,
        "progress-went-back": None,
        "progress-ahead": None,
        "progress-lost": None,
        "generation-hole": None,
        "generation-missing": None,
        "generation-damaged": None,
        "wal-hole": None,
        "wal-entry-damaged": None,
        "corrupt-region-manifest": None,
        "manifest-unreadable": None,
        "manifest-missing": None,
        "manifest-went-back": None,
        "duplicate-keys": None,
        "check-failed": _CHECKS,
        # What stands in the way of the jobs below.
        "quarantined-generations": _CHECKS,
        "merge-impossible": None,
        "stuck-job": _RUNS,
        "job-failures": _RUNS,
        "epoch-changes": None,
        # What a job does.
        "wal-lag": lambda finding: NextStep("Flush idle regions…", "memwal_flush", regions=_regions(finding)),
        "pending-generations": _merge,
        "oldest-unmerged": _merge,
        "drain-time": _merge,
        "index-lag": NextStep("Catch up indexes…", "memwal_catchup"),
        "catchup-ahead": _merge,
        "peak-memory": _RUNS,
        "snapshot-age": NextStep("Publish snapshot…", "memwal_snapshot"),
        "base-versions": NextStep("Remove versions…", "memwal_compact", MappingProxyType({"remove_versions": True})),
        "base-fragments": NextStep("Compact…", "memwal_compact"),
        "garbage": NextStep("Collect garbage…", "memwal_gc"),
        "kept": NextStep("See what is kept", place="garbage"),
    }
)
"""Finding -> what to do, in the order in which one comes before another that is as urgent. None: what its command says,
or else its runbook. Findings that are not here come with those that stand in the way."""

_ORDER = {name: number for number, name in enumerate(_ACTIONS)}
_VERBS = {"repair": "Repair…", "thaw": "Decide, then thaw…", "relocate": "Relocate…"}


def action_for(finding: Finding) -> NextStep:
    """Return the one thing to do about a finding."""
    known = _ACTIONS.get(finding.finding_id)
    if known is not None:
        return known if isinstance(known, NextStep) else known(finding)
    verb = finding.command.split()[1] if finding.command.startswith("memwal ") else ""
    return NextStep(_VERBS.get(verb, "See what to do"), command=finding.command)


def most_urgent(health: Health) -> Finding | None:
    """Return what to do something about first; None if no operator has to act."""
    urgent = [each for each in health.findings if each.severity is not Severity.INFO]
    obstacles = _ORDER["merge-impossible"]
    levels = list(Severity)
    return min(
        urgent,
        key=lambda each: (-levels.index(each.severity), _ORDER.get(each.finding_id, obstacles), each.subject),
        default=None,
    )


def advise(health: Health, runs: Runs) -> Advice:
    """Say what matters of a table that could be read.

    Args:
        health: What was found and measured.
        runs: Its remembered runs, the newest last.
    """
    first = most_urgent(health)
    if first is None or first.evidence.get("value", 0) is None:
        return _advise_unmeasured(health) or Advice(FleetState.FINE, health.colour, _fine(health, runs))
    record = health.seen.record
    frozen = any(each.stops_table for each in record.active) if record is not None else False
    return Advice(
        FleetState.FROZEN if frozen or first.finding_id.endswith("-frozen") else FleetState.ATTENTION,
        health.colour,
        sentence_of(first, health, runs),
        action_for(first),
        first.remedy,
        runbook_name(first.runbook),
        first,
    )


def advise_unknown(error: MemwalError) -> Advice:
    """Say what matters of a table that could not be read."""
    return Advice(
        FleetState.UNKNOWN,
        "unknown",
        as_sentence(f"cannot be read: {error.what}; whether its rows are merged is not known"),
        NextStep("See what to do"),
        error.remedy,
    )


def runbook_name(path: str) -> str:
    """Return the name of a runbook by its path in the repository; empty if it is another page."""
    page = PurePosixPath(path)
    return page.stem if page.parent.name == "runbooks" else ""


def _advise_unmeasured(health: Health) -> Advice | None:
    """Say what could not be measured though something was there; None if nothing is like that."""
    readings = [each.reading for each in health.signals if each.reading is not None and each.value is None]
    if not readings:
        return None
    subjects = ", ".join(sorted({short_ids(each.subject) for each in readings}))
    problem = next((str(each.evidence["problem"]) for each in readings if "problem" in each.evidence), "")
    why = f": {problem}" if problem else ""
    text = f"not everything could be measured ({subjects}){why}; whether an operator has to act is not known"
    return Advice(
        FleetState.UNKNOWN,
        "unknown",
        as_sentence(text),
        NextStep("See what to do"),
        f"run `memwal doctor {shlex.quote(health.table_uri)}`",
    )


def _fine(health: Health, runs: Runs) -> str:
    status = health.status
    waiting = status.merge_lag_generations if status is not None else 0
    bytes_ = status.merge_lag_bytes if status is not None else 0
    verb = "waits" if waiting == 1 else "wait"
    some = f"{count(waiting, 'flushed MemTable')} ({size(bytes_)}) {verb} for the next merge, within the limits"
    what = some if waiting else "nothing waits"
    merged = next((run for run in reversed(runs) if run.key.job == "merge" and run.outcome.is_success), None)
    ago = "" if merged is None else f", merged {age(max(0.0, (health.seen.now - merged.started).total_seconds()))} ago"
    return as_sentence(f"{what}{ago}")

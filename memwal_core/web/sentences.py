"""What is wrong with a table, since when and why it matters: one sentence for each kind of finding. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from memwal_core.coordination.freeze import Freeze
from memwal_core.coordination.ledger import RunRecord
from memwal_core.errors import MemwalError
from memwal_core.observe.findings import Finding
from memwal_core.observe.health import Health
from memwal_core.observe.signals import Signal
from memwal_core.text import show_count as count
from memwal_core.web.show import age, as_sentence, share, short_ids

_COUNTED = re.compile(r"^\d+ findings: ")

Runs = Sequence[RunRecord]
"""Of all jobs of a table, the newest last."""


class Told:
    """What a sentence is made of: a finding, and what is known beside it.

    Args:
        runs: Its remembered runs, the newest last.
    """

    def __init__(self, finding: Finding, health: Health, runs: Runs) -> None:
        """Keep the parts."""
        self.finding, self.health, self.runs = finding, health, runs

    @property
    def value(self) -> float:
        """The measured value; 0 for what was found, not measured."""
        found = self.finding.evidence.get("value")
        return float(found) if isinstance(found, int | float) else 0.0

    @property
    def where(self) -> str:
        """The region, index or job concerned; ``the table`` if it is the whole of it."""
        return short_ids(self.finding.subject) or "the table"

    @property
    def region(self) -> str:
        """The region concerned."""
        region_id = self.finding.region_id
        return f"region {str(region_id)[:8]}" if region_id is not None else "the table"

    def lasting(self, moment: datetime | None) -> str:
        """Return for how long something has been so; empty if it is not known."""
        return "" if moment is None else f" for {age(max(0.0, (self.health.seen.now - moment).total_seconds()))}"

    def since(self, moment: datetime | None, before: str) -> str:
        """Return how long ago something was, as the end of a clause; empty if it is not known."""
        if moment is None:
            return ""
        return f", {before} {age(max(0.0, (self.health.seen.now - moment).total_seconds()))} ago"

    def last_success(self, job: str) -> datetime | None:
        """Return when a job last did its work."""
        return next((run.started for run in reversed(self.runs) if run.key.job == job and run.outcome.is_success), None)

    def first_failure(self) -> RunRecord | None:
        """Return the first of the failures in a row that the finding counts."""
        failed = [run for run in self.runs if str(run.key) == self.finding.subject and run.outcome.is_failure]
        return failed[-round(self.value) :][0] if failed and self.value else None

    def freeze(self) -> Freeze | None:
        """Return the freeze that the finding is about."""
        record = self.health.seen.record
        cause = self.finding.evidence.get("cause")
        active = record.active if record is not None else ()
        return next(
            (each for each in active if each.cause.value == cause and each.region_id == self.finding.region_id), None
        )


def _pending(told: Told) -> str:
    oldest = told.health.value(Signal.OLDEST_UNMERGED) or 0.0
    waits = "waits" if round(told.value) == 1 else "wait"
    return (
        f"{count(told.value, 'flushed MemTable')} of {told.region} {waits} for a merge, the oldest for {age(oldest)}; "
        "reads become slower with each of them"
    )


def _failures(told: Told) -> str:
    job, _, scope = told.finding.subject.partition("/")
    what = f"{job} of {short_ids(scope)}" if scope and scope != "table" else job
    first = told.first_failure()
    last = next((run for run in reversed(told.runs) if run.outcome.is_failure and run.key.job == job), None)
    cause = f" ({run_error(last)})" if last is not None and run_error(last) else ""
    since = told.since(first.started if first is not None else None, "the first")
    return (
        f"The last {count(told.value, 'run')} of {what} failed{since}{cause}; "
        "its work piles up, and it pauses between its attempts"
    )


def _frozen(told: Told) -> str:
    freeze = told.freeze()
    where = "the table" if told.finding.finding_id == "table-frozen" else told.region
    if freeze is None:
        return f"{told.finding.summary} ({where}); {told.finding.risk}"
    reason = freeze.evidence.get("reason")
    why = f"{freeze.by}: {reason}" if reason else freeze.cause.facts.summary
    risk = f"; {freeze.cause.facts.risk}" if not reason else "; rows wait until a person thaws it"
    return f"No job has worked on {where}{told.lasting(freeze.at)} ({why}){risk}"


def _other(told: Told) -> str:
    where = f" ({told.where})" if told.finding.subject else ""
    risk = f"; {told.finding.risk}" if told.finding.risk else ""
    # What a signal counts begins with a number that says nothing.
    return f"{short_ids(_COUNTED.sub('', told.finding.summary))}{where}{risk}"


_SENTENCES: Mapping[str, Callable[[Told], str]] = MappingProxyType(
    {
        "table-frozen": _frozen,
        "region-frozen": _frozen,
        "pending-generations": _pending,
        "oldest-unmerged": lambda told: (
            f"A flushed MemTable ({told.where}) has waited {age(told.value)} for its merge; readers of the base table "
            "alone see old rows"
        ),
        "drain-time": lambda told: (
            f"What waits would take {age(told.value)} to merge {told.where}; merges fall behind the writers"
        ),
        "wal-lag": lambda told: (
            f"Rows of {told.region} have been in the WAL for {age(told.value)} without a flush; no merge sees them, "
            "and each restart of the writer replays them"
        ),
        "epoch-changes": lambda told: (
            f"{told.region} changed its writer {count(told.value, 'time')} in the last hour; two writers fight for it, "
            "and rows arrive slowly or not at all"
        ),
        "index-lag": lambda told: (
            f"{told.where} is {count(told.value, 'merged generation')} behind"
            f"{told.since(told.last_success('catchup'), 'last caught up')}; searches read unindexed rows, and flushed "
            "MemTables stay"
        ),
        "garbage": lambda told: (
            f"{share(told.value)} of the table's bytes are garbage ({told.where})"
            f"{told.since(told.last_success('gc'), 'last collected')}; no rows are at risk, the space costs money"
        ),
        "kept": lambda told: (
            f"{share(told.value)} of the table's bytes are old and stay until somebody acts ({told.where}); no rows "
            "are at risk, the space costs money"
        ),
        "job-failures": _failures,
        "stuck-job": lambda told: (
            f"{told.where} has not renewed its lease for {age(told.value)}; it hangs or died, and its work piles up"
        ),
        "check-failed": lambda told: (
            f"{count(told.value, 'check')} of the base table failed ({told.where})"
            f"{told.since(told.last_success('quality'), 'last checked')}; rows may be wrong or lost"
        ),
        "quarantined-generations": lambda told: (
            f"{count(told.value, 'flushed MemTable')} of {told.region} failed the audit; no merge takes on them or "
            "what came later until a person decides"
        ),
        "duplicate-keys": lambda told: (
            f"{count(told.value, 'row')} of the base table repeat a key ({told.where}); queries return old rows beside "
            "new ones"
        ),
        "base-fragments": lambda told: (
            f"The base table has {count(told.value, 'small fragment')}"
            f"{told.since(told.last_success('compact'), 'last compacted')}; scans and merges become slower"
        ),
        "base-versions": lambda told: (
            f"{told.where} are past their retention, the oldest for {age(told.value)}; their files pile up"
        ),
        "snapshot-age": lambda told: (
            f"{told.where} has differed from the region snapshot for {age(told.value)}; readers that plan from it miss "
            "what was flushed since"
        ),
        "peak-memory": lambda told: (
            f"{told.where} used {share(told.value)} of its memory in its last run; it may be killed in the middle of "
            "its work"
        ),
    }
)
"""Finding -> its sentence; the others say their summary, where, and the risk."""


def sentence_of(finding: Finding, health: Health, runs: Runs) -> str:
    """Return what is wrong, since when and why it matters.

    Args:
        finding: What is wrong.
        health: The table's.
        runs: Its remembered runs, the newest last; they tell since when.
    """
    return as_sentence(_SENTENCES.get(finding.finding_id, _other)(Told(finding, health, runs)))


def run_error(run: RunRecord) -> str:
    """Return why a run failed, in words; empty if it says nothing."""
    # Errors of ours say what happened; what others raise is named by its class.
    if run.verdict and run.error in _own_errors():
        return run.verdict
    return ": ".join(filter(None, (run.error, run.verdict)))


def _own_errors(kind: type[MemwalError] = MemwalError) -> set[str]:
    return {kind.__name__}.union(*(_own_errors(each) for each in kind.__subclasses__()))

"""What happened to a table: runs, freezes and thaws in one row, the newest first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from memwal_core.coordination.freeze import Freeze
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.text import show_count as count
from memwal_core.web.sentences import run_error
from memwal_core.web.show import age, as_sentence, facts, short_ids, words

_MADE_UP = re.compile(r"[0-9a-f]{32}")
"""A name that nobody gave: who called the library did not say who they are."""

_QUIET = frozenset({RunOutcome.NOTHING_TO_DO})
_TONES = {RunOutcome.DONE: "good", RunOutcome.PARTIAL: "fair", RunOutcome.FENCED: "fair", RunOutcome.FROZEN: "frozen"}
"""Outcomes that are no failure and that people should see; the others are quiet."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        at: When it began, in UTC.
        tone: ``bad``, ``fair``, ``good``, ``quiet``, ``frozen`` or ``thawed``.
        took: How long; empty if that means nothing.
        holder: Who did it, as the ledger or the record has it.
    """

    at: datetime
    title: str
    tone: str
    outcome: str
    text: str
    took: str = ""
    holder: str = ""


def list_events(runs: Sequence[RunRecord], freezes: Sequence[Freeze], limit: int) -> tuple[Event, ...]:
    """Return the newest events of a table; runs in a row that found nothing to do are one.

    Args:
        runs: The remembered runs of all jobs, the oldest first.
        freezes: Of the table and its regions, those that ended among them.
        limit: How many at most.
    """
    newest = [run for run in reversed(runs) if run.key.job != "thaw"]
    found = [event for quiet, group in groupby(newest, _is_quiet) for event in _of_runs(list(group), quiet=quiet)]
    events = [*found, *_of_freezes(freezes)]
    events.sort(key=lambda event: event.at, reverse=True)
    return tuple(events[:limit])


def _is_quiet(run: RunRecord) -> bool:
    return run.outcome in _QUIET


def _of_runs(runs: Sequence[RunRecord], *, quiet: bool) -> Iterator[Event]:
    if quiet and len(runs) > 1:
        jobs = ", ".join(sorted({words(run.key.job) for run in runs}))
        yield Event(runs[0].started, count(len(runs), "run"), "quiet", "nothing to do", as_sentence(jobs))
        return
    yield from map(_of_run, runs)


def _of_run(run: RunRecord) -> Event:
    scope = "" if run.key.scope == "table" else f" of {short_ids(run.key.scope)}"
    took = age((run.ended - run.started).total_seconds()) if run.ended is not None else ""
    text = run_error(run) if run.error else run.verdict or facts(run.facts)
    return Event(
        run.started,
        f"{words(run.key.job)}{scope}",
        "bad" if run.outcome.is_failure else _TONES.get(run.outcome, "quiet"),
        words(run.outcome.value),
        as_sentence(short_ids(text)),
        took,
        "" if run.holder == run.run_id or _MADE_UP.fullmatch(run.holder) else run.holder,
    )


def _of_freezes(freezes: Sequence[Freeze]) -> Iterator[Event]:
    for each in freezes:
        where = f"region {str(each.region_id)[:8]}" if each.region_id is not None else "the table"
        reason = each.evidence.get("reason")
        text = str(reason) if reason else each.cause.facts.summary
        yield Event(each.at, f"freeze of {where}", "frozen", "frozen", as_sentence(text), holder=each.by)
        if each.ended is not None:
            end = each.ended
            chosen = f"{end.choice.value}: {end.reason}" if end.reason else end.choice.value
            yield Event(end.at, f"thaw of {where}", "thawed", "thawed", as_sentence(chosen), holder=end.by)

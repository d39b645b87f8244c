"""The MemWAL index of early releases: recognised, shown, checked, never touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memwal_core.format.memwal_index.legacy import legacy_problems
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity


def index_is_not_legacy(seen: Examination) -> Iterator[Finding]:
    """The newest version has today's MemWAL index, not that of early releases."""
    if seen.state is None or not seen.state.is_legacy:
        return
    newest = seen.legacy[-1] if seen.legacy else None
    states = Counter(each.state.value for each in newest.mem_wals) if newest is not None else {}
    yield Finding(
        "legacy-index",
        Severity.WARNING,
        "the table has the MemWAL index of an early release",
        {"version": seen.state.version, "states": dict(states)},
        "no job of this platform works on the table, and only the old writer can read the rows in its WALs",
        "let the old writer finish and merge, then copy the rows into a new table and enable MemWAL there",
    )


def legacy_rules_hold(seen: Examination) -> Iterator[Finding]:
    """An early MemWAL index keeps the rules of its own time."""
    if not seen.legacy:
        return
    *older, newest = seen.legacy
    for problem in legacy_problems(newest, older):
        yield Finding(
            "legacy-contradiction",
            Severity.WARNING,
            "the early MemWAL index contradicts its own rules",
            {"subject": problem, "problem": problem},
            "the old writer may have lost entries",
            "compare with the old writer's logs before trusting its states",
        )

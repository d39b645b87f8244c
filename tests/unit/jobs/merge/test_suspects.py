"""Which flushed MemTables are decoded elsewhere first, judged by earlier runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.jobs.merge.read.suspects import SUSPECTS_FACT, Suspects, suspects_of

pytestmark = pytest.mark.req("T6")


def _run(outcome: RunOutcome, facts: Mapping[str, object] | None = None) -> RunRecord:
    return RunRecord(JobKey("merge"), "id", "holder", datetime(2026, 1, 1, tzinfo=UTC), 0, None, outcome, facts or {})


DIED, FAILED = _run(RunOutcome.RUNNING), _run(RunOutcome.FAILED)
CLEAN = _run(RunOutcome.DONE, {SUSPECTS_FACT: []})
FOUND = _run(RunOutcome.PARTIAL, {SUSPECTS_FACT: ["a_gen_2", 5, None]})


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], Suspects()),
        ([CLEAN], Suspects()),
        ([DIED], Suspects(everything=True)),
        ([CLEAN, DIED], Suspects(everything=True)),
        ([DIED, CLEAN], Suspects()),
        ([FOUND], Suspects(frozenset({"a_gen_2"}))),
        ([FOUND, FAILED], Suspects(frozenset({"a_gen_2"}))),
        ([FOUND, DIED, FAILED], Suspects(frozenset({"a_gen_2"}), everything=True)),
        ([FOUND, CLEAN], Suspects()),
        ([_run(RunOutcome.DONE, {SUSPECTS_FACT: "a_gen_2"})], Suspects()),
    ],
)
def test_a_report_clears_what_was_before_it_and_a_death_suspects_everything(
    runs: list[RunRecord], expected: Suspects
) -> None:
    found = suspects_of(runs)

    assert found == expected
    assert ("a_gen_2" in found) == bool(expected.directories or expected.everything)
    assert ("b_gen_1" in found) == expected.everything

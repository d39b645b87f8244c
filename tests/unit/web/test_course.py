"""Charts and the row of events, from what the ledger and the record remember; and runbooks beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memwal_core.coordination.freeze import Choice, Freeze, FreezeCause, FreezeEnd
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.jobs.merge.report import MERGED_BYTES_FACT
from memwal_core.web.events import list_events
from memwal_core.web.runbook import render_runbook, runbooks
from memwal_core.web.show import short_ids
from memwal_core.web.trends import HEIGHT, WIDTH, Now, draw_trends

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROOT = Path(__file__).parents[3]


def run(job: str, minutes_ago: float, outcome: RunOutcome = RunOutcome.DONE, **facts: object) -> RunRecord:
    began = NOW - timedelta(minutes=minutes_ago)
    error, verdict = ("UnavailableError", "the store did not answer") if outcome is RunOutcome.FAILED else ("", "why")
    end = began + timedelta(seconds=30)
    return RunRecord(
        JobKey(job), f"{job}{minutes_ago}", "memwal_merge/r", began, 1, end, outcome, facts, error, verdict
    )


def merge(minutes_ago: float, rows: int) -> RunRecord:
    return run("merge", minutes_ago, rows=rows, generations=rows // 10, version=rows, **{MERGED_BYTES_FACT: rows * 100})


def test_rows_per_hour_add_up_and_lie_within_the_picture() -> None:
    runs = [merge(minutes, 60) for minutes in range(24 * 60 - 5, 0, -10)]

    charts = {each.title: each for each in draw_trends(runs, Now(NOW, 0, 0, 7, 99))}

    assert list(charts) == [
        "Rows merged per hour", "Bytes that waited at each merge, and now", "Flushed MemTables that waited, and now",
        "Version of the base table", "Rows without index at each catch-up, and now", "Time of each run",
    ]  # fmt: skip
    rows = charts["Rows merged per hour"]
    assert len(rows.bars) == 24
    assert "360" in rows.highest or "361" in rows.highest
    assert charts["Bytes that waited at each merge, and now"].newest == "0 B"
    assert charts["Rows without index at each catch-up, and now"].newest == "7"
    assert charts["Version of the base table"].newest == "99"
    for chart in charts.values():
        for bar in chart.bars:
            assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
            assert 0 <= bar.y <= bar.y + bar.height <= HEIGHT + 0.1
        for corner in chart.line.split():
            x, y = map(float, corner.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
        assert chart.title in chart.summary


def test_failed_runs_are_drawn_apart_and_counted() -> None:
    charts = draw_trends([merge(50, 10), run("merge", 40, RunOutcome.FAILED)], Now(NOW, 5000, 3, None, 2))

    times = charts[-1]
    assert [bar.is_bad for bar in times.bars] == [False, True]
    assert "1 failed" in times.summary
    assert "Rows without index at each catch-up, and now" not in {each.title for each in charts}


@pytest.mark.parametrize(
    "facts", [{}, {"rows": "many"}, {"rows": True, "version": None}, {"rows": -(2**62)}, {"rows": 2**62, "version": 0}]
)
def test_facts_of_any_kind_make_no_chart_fail(facts: dict[str, object]) -> None:
    for ahead in (-600, 0, 600):
        draw_trends([run("merge", 10 + ahead, **facts), run("catchup", 5, **facts)], Now(NOW, 0, 0, 0, 0))


def test_a_table_without_runs_has_no_charts() -> None:
    assert draw_trends([], Now(NOW, 1, 1, 1, 1)) == ()


def test_runs_freezes_and_thaws_are_one_row_with_the_newest_first() -> None:
    end = FreezeEnd(Choice.ACCEPT, "anna", NOW - timedelta(minutes=5), "the restore is done")
    freeze = Freeze(FreezeCause.BY_HAND, {"reason": "a restore"}, "anna", NOW - timedelta(minutes=25), None, end)
    quiet = [run("merge", minutes, RunOutcome.NOTHING_TO_DO) for minutes in (19, 18, 17)]
    runs = [merge(30, 10), *quiet, run("thaw", 5), run("merge", 2, RunOutcome.FAILED)]

    events = list_events(runs, [freeze], 10)

    assert [(each.title, each.tone) for each in events] == [
        ("merge", "bad"), ("thaw of the table", "thawed"), ("3 runs", "quiet"), ("freeze of the table", "frozen"),
        ("merge", "good"),
    ]  # fmt: skip
    assert events[0].text == "The store did not answer."  # in words, without the name of a class
    assert events[1].text == "Accept: the restore is done."
    assert events[3].text == "A restore."
    assert len(list_events(runs, [freeze], 2)) == 2


def test_a_run_that_did_not_do_everything_is_not_green() -> None:
    tones = {each: list_events([run("merge", 1, each)], [], 1)[0].tone for each in RunOutcome}

    assert {outcome for outcome, tone in tones.items() if tone == "good"} == {RunOutcome.DONE}
    assert {outcome for outcome, tone in tones.items() if tone == "bad"} == {
        outcome for outcome in RunOutcome if outcome.is_failure
    }
    assert (tones[RunOutcome.PARTIAL], tones[RunOutcome.FROZEN]) == ("fair", "frozen")


def test_names_that_machines_made_up_are_short_in_sentences() -> None:
    mark = "_mem_wal/_regions/1/" + "6" * 64 + ".json"

    assert short_ids(f"the mark of its creation beside {mark} names it").endswith("/1/66666666….json names it")
    assert short_ids("generation 10000000 of 1285 bytes") == "generation 10000000 of 1285 bytes"


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")))
def test_a_runbook_is_shown_with_the_table_in_its_commands_and_leads_to_other_runbooks_only(name: str) -> None:
    text = render_runbook(name, "a&b", "/x y.lance", "REGION-1")

    assert text is not None
    assert "$TABLE" not in text
    assert "$REGION" not in text
    assert ("$TABLE" in (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()) == ("'/x y.lance'" in text)
    assert "<h1" not in text
    links = [part.split('"')[0] for part in text.split('href="')[1:]]
    assert all(link.startswith("runbook?name=") and link.endswith("&amp;table=a%26b") for link in links)


def test_an_address_is_no_markup_in_a_runbook() -> None:
    text = render_runbook("wal-lag", "t", "<script>x</script>")

    assert text is not None
    assert "<script>" not in text


@pytest.mark.parametrize("name", ["../freeze", "freeze", "", "wal-lag.md", "/etc/passwd"])
def test_other_names_are_no_runbooks(name: str) -> None:
    assert render_runbook(name, "t", "/t") is None


def test_runbooks_are_found() -> None:
    assert len(runbooks()) == len(list((ROOT / "docs" / "runbooks").glob("*.md"))) > 20

"""What the page says of a table, and the one thing to do: for each signal, freeze and error."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memwal_core.coordination.freeze import Freeze, FreezeCause, MaintenanceRecord
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.ids import parse_region_id
from memwal_core.observe.doctor import Examination, command_for
from memwal_core.observe.doctor.checks.progress import table_is_not_frozen
from memwal_core.observe.findings import Finding, Severity
from memwal_core.observe.health import Health
from memwal_core.observe.signals import SIGNALS, Reading, Signal
from memwal_core.registry import BrokenEntry, RegisteredTable
from memwal_core.settings.status import StatusSettings
from memwal_core.web.advice import FleetState, NextStep, advise, advise_unknown
from memwal_core.web.app import RUNNABLE
from memwal_core.web.board import LastLook
from memwal_core.web.fleet import TableSummary, advise_sight, count_states, list_fleet

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REGION = parse_region_id("11111111-2222-4333-8444-555555555555")
WHERE = f"region {REGION}"


def health(*readings: Reading, damage: tuple[Finding, ...] = (), freezes: tuple[Freeze, ...] = ()) -> Health:
    record = MaintenanceRecord(freezes=freezes)
    seen = Examination("t", NOW, None, None, (), (), (), (), record=record)
    return Health("t", damage, readings, StatusSettings(), seen)


def run(job: str, hours_ago: float, outcome: RunOutcome = RunOutcome.DONE, error: str = "", verdict: str = ""):
    began = NOW - timedelta(hours=hours_ago)
    return RunRecord(JobKey(job), f"{job}{hours_ago}", "h", began, 1, began, outcome, {}, error, verdict)


def damage(name: str) -> Finding:
    found = Finding(name, Severity.CRITICAL, "something is gone", {}, "rows may be lost", "look", REGION)
    return Finding(*(getattr(found, each) for each in found.__slots__[:-1]), command=command_for(found, "t"))


MEASURED = {
    Signal.PENDING_GENERATIONS: (
        Reading(Signal.PENDING_GENERATIONS, 40, WHERE, REGION),
        "40 flushed MemTables of region 11111111 wait for a merge, the oldest for 0 s; reads become slower",
        NextStep("Merge…", "memwal_merge", regions=(str(REGION),)),
    ),
    Signal.OLDEST_UNMERGED: (
        Reading(Signal.OLDEST_UNMERGED, 7200, f"{WHERE} generation 4", REGION),
        "A flushed MemTable (region 11111111 generation 4) has waited 2.0 h for its merge; readers of the base table",
        NextStep("Merge…", "memwal_merge", regions=(str(REGION),)),
    ),
    Signal.DRAIN_TIME: (
        Reading(Signal.DRAIN_TIME, 36_000, "at the rate of the last 3 merges"),
        "What waits would take 10.0 h to merge at the rate of the last 3 merges; merges fall behind",
        NextStep("Merge…", "memwal_merge"),
    ),
    Signal.WAL_LAG: (
        Reading(Signal.WAL_LAG, 7200, f"{WHERE} WAL entry 7", REGION),
        "Rows of region 11111111 have been in the WAL for 2.0 h without a flush; no merge sees them",
        NextStep("Flush idle regions…", "memwal_flush", regions=(str(REGION),)),
    ),
    Signal.EPOCH_CHANGES: (
        Reading(Signal.EPOCH_CHANGES, 9, WHERE, REGION),
        "Region 11111111 changed its writer 9 times in the last hour; two writers fight for it",
        NextStep("See what to do"),
    ),
    Signal.INDEX_LAG: (
        Reading(Signal.INDEX_LAG, 90, f"index v, {WHERE}", REGION),
        "Index v, region 11111111 is 90 merged generations behind, last caught up 5.0 h ago; searches read unindexed",
        NextStep("Catch up indexes…", "memwal_catchup"),
    ),
    Signal.GARBAGE: (
        Reading(Signal.GARBAGE, 0.9, "9 of 10 bytes"),
        "90 % of the table's bytes are garbage (9 of 10 bytes), last collected 6.0 h ago; no rows are at risk",
        NextStep("Collect garbage…", "memwal_gc"),
    ),
    Signal.KEPT: (
        Reading(Signal.KEPT, 0.9, "9 of 10 bytes; a tag"),
        "90 % of the table's bytes are old and stay until somebody acts (9 of 10 bytes; a tag); no rows",
        NextStep("See what is kept", place="garbage"),
    ),
    Signal.JOB_FAILURES: (
        Reading(Signal.JOB_FAILURES, 3, "merge/table"),
        "The last 3 runs of merge failed, the first 3.0 h ago (OSError: no space left); its work piles up",
        NextStep("See its runs", place="timeline"),
    ),
    Signal.STUCK_JOB: (
        Reading(Signal.STUCK_JOB, 7200, "merge/table of somebody"),
        "Merge/table of somebody has not renewed its lease for 2.0 h; it hangs or died",
        NextStep("See its runs", place="timeline"),
    ),
    Signal.CHECK_FAILED: (
        Reading(Signal.CHECK_FAILED, 1, "version 3"),
        "1 check of the base table failed (version 3), last checked 7.0 h ago; rows may be wrong or lost",
        NextStep("See the checks", place="quality"),
    ),
    Signal.QUARANTINED_GENERATIONS: (
        Reading(Signal.QUARANTINED_GENERATIONS, 9, WHERE, REGION),
        "9 flushed MemTables of region 11111111 failed the audit; no merge takes on them",
        NextStep("See the checks", place="quality"),
    ),
    Signal.DUPLICATE_KEYS: (
        Reading(Signal.DUPLICATE_KEYS, 4, "check key_unique"),
        "4 rows of the base table repeat a key (check key_unique); queries return old rows beside new ones",
        NextStep("Repair…", command="memwal repair t --duplicates"),
    ),
    Signal.BASE_FRAGMENTS: (
        Reading(Signal.BASE_FRAGMENTS, 900),
        "The base table has 900 small fragments, last compacted 8.0 h ago; scans and merges become slower",
        NextStep("Compact…", "memwal_compact"),
    ),
    Signal.BASE_VERSIONS: (
        Reading(Signal.BASE_VERSIONS, 8_640_000, "5 of 9 versions"),
        "5 of 9 versions are past their retention, the oldest for 100.0 d; their files pile up",
        NextStep("Remove versions…", "memwal_compact", {"remove_versions": True}),
    ),
    Signal.SNAPSHOT_AGE: (
        Reading(Signal.SNAPSHOT_AGE, 864_000, WHERE, REGION),
        "Region 11111111 has differed from the region snapshot for 10.0 d; readers that plan from it miss",
        NextStep("Publish snapshot…", "memwal_snapshot"),
    ),
    Signal.PEAK_MEMORY: (
        Reading(Signal.PEAK_MEMORY, 0.97, "merge/table"),
        "Merge/table used 97 % of its memory in its last run; it may be killed",
        NextStep("See its runs", place="timeline"),
    ),
}
COUNTED = {
    "generation-hole": NextStep("Repair…", command=f"memwal repair t --region {REGION}"),
    "generation-missing": NextStep("Repair…", command=f"memwal repair t --region {REGION}"),
    "generation-damaged": NextStep("Repair…", command=f"memwal repair t --region {REGION}"),
    "index-gone": NextStep("Decide, then thaw…", command="memwal thaw t"),
    "progress-ahead": NextStep("Decide, then thaw…", command="memwal thaw t"),
    "progress-went-back": NextStep("Decide, then thaw…", command="memwal thaw t"),
    "manifest-went-back": NextStep("Decide, then thaw…", command="memwal thaw t"),
    "table-unreadable": NextStep("See what to do"),
    "manifest-unreadable": NextStep("See what to do"),
    "manifest-missing": NextStep("See what to do"),
    "manifest-version-hole": NextStep("See what to do"),
}
RUNS = (
    run("quality", 7), run("gc", 6), run("compact", 8), run("catchup", 5), run("merge", 4),
    *(run("merge", hours, RunOutcome.FAILED, "OSError", "no space left") for hours in (3, 2, 1)),
)  # fmt: skip


def test_every_signal_and_finding_that_counts_for_one_is_covered() -> None:
    counted = {name for facts in SIGNALS.values() for name in facts.findings}

    assert set(MEASURED) == {signal for signal, facts in SIGNALS.items() if not facts.findings}
    assert set(COUNTED) == counted


@pytest.mark.parametrize("signal", MEASURED)
def test_a_signal_is_one_sentence_and_one_button(signal: Signal) -> None:
    reading, sentence, action = MEASURED[signal]

    advice = advise(health(reading), RUNS)

    assert advice.sentence.startswith(sentence)
    assert advice.sentence.endswith(".")
    assert advice.action == action
    assert action.dag in {"", *RUNNABLE}
    assert (advice.state, advice.colour, advice.runbook) == (FleetState.ATTENTION, "bad", SIGNALS[signal].name)


@pytest.mark.parametrize("name", COUNTED)
def test_damage_is_one_sentence_and_the_command_that_mends_it(name: str) -> None:
    advice = advise(health(damage=(damage(name),)), ())

    assert advice.sentence == "Something is gone (region 11111111); rows may be lost."
    assert advice.action == COUNTED[name]


def test_what_only_a_merge_has_met_is_told_as_well() -> None:
    parked = Reading(Signal.CORRUPT_MANIFEST, 1, f"{WHERE}: a file is gone", REGION)

    advice = advise(health(parked, MEASURED[Signal.PENDING_GENERATIONS][0]), ())

    assert advice.sentence.startswith("Manifests that are missing, cannot be read, or contradict themselves (region 1")
    assert (advice.state, advice.runbook) == (FleetState.ATTENTION, "corrupt-region-manifest")


@pytest.mark.parametrize("cause", FreezeCause)
def test_a_freeze_comes_before_everything_else_and_says_since_when(cause: FreezeCause) -> None:
    region = REGION if cause is FreezeCause.REGION_VANISHED else None
    freeze = Freeze(cause, {}, "merge", NOW - timedelta(hours=2), region)
    record = health(freezes=(freeze,)).seen
    [found] = table_is_not_frozen(record)
    # A region that vanished is also one whose files a merge missed, and its runbook is the one of the freeze.
    parked = Reading(Signal.CORRUPT_MANIFEST, 1, f"{WHERE}: a file is gone", REGION)
    others = (MEASURED[Signal.PENDING_GENERATIONS][0], MEASURED[Signal.JOB_FAILURES][0], parked)

    advice = advise(health(*others, damage=(found,), freezes=(freeze,)), RUNS)

    where = "region 11111111" if region else "the table"
    assert advice.sentence.startswith(
        f"No job has worked on {where} for 2.0 h ({cause.facts.summary}); {cause.facts.risk}"
    )
    assert advice.state is FleetState.FROZEN


def test_a_freeze_by_hand_gives_its_reason() -> None:
    freeze = Freeze(FreezeCause.BY_HAND, {"reason": "a restore is under way"}, "anna", NOW - timedelta(hours=2))
    [found] = table_is_not_frozen(health(freezes=(freeze,)).seen)

    advice = advise(health(damage=(found,), freezes=(freeze,)), ())

    assert "(anna: a restore is under way)" in advice.sentence
    assert advice.runbook == "frozen-by-hand"


def test_what_stands_in_the_way_comes_before_what_it_holds_up() -> None:
    waiting, failing = MEASURED[Signal.PENDING_GENERATIONS][0], MEASURED[Signal.JOB_FAILURES][0]
    warns = Reading(Signal.JOB_FAILURES, 2, "merge/table")

    assert advise(health(waiting, failing), RUNS).action == NextStep("See its runs", place="timeline")
    assert advise(health(waiting, warns), RUNS).action == MEASURED[Signal.PENDING_GENERATIONS][2]  # it is more urgent


def test_what_could_not_be_measured_is_unknown_and_not_fine() -> None:
    gap = Reading(Signal.JOB_FAILURES, None, "history of merge/table", evidence={"problem": "no JSON"})

    advice = advise(health(gap, Reading(Signal.PENDING_GENERATIONS, 0)), ())
    urgent = advise(health(gap, MEASURED[Signal.PENDING_GENERATIONS][0]), ())

    assert (advice.state, advice.colour) == (FleetState.UNKNOWN, "unknown")
    assert advice.sentence.startswith("Not everything could be measured (history of merge/table): no JSON; whether")
    assert urgent.state is FleetState.ATTENTION


def test_a_fine_table_needs_nothing_and_says_so() -> None:
    advice = advise(health(Reading(Signal.PENDING_GENERATIONS, 0)), (run("merge", 4),))

    assert (advice.state, advice.colour, advice.action) == (FleetState.FINE, "good", None)
    assert advice.sentence == "Nothing waits, merged 4.0 h ago."


def test_an_error_is_told_in_words_and_what_was_seen_before_with_its_age() -> None:
    error = UnavailableError("the store did not answer", remedy="see whether it runs", url="s3://b", tries=3)
    table = RegisteredTable(name="t", uri="/t")
    before = TableSummary.of(health(MEASURED[Signal.INDEX_LAG][0]), RUNS)

    never = advise_sight(LastLook(table, error=error))
    again = advise_sight(LastLook(table, before, NOW, 120.0, error))

    assert never == advise_unknown(error)
    assert never.sentence == "Cannot be read: the store did not answer; whether its rows are merged is not known."
    assert never.remedy == "see whether it runs"
    assert again.state is FleetState.UNKNOWN
    assert again.sentence.startswith(f"{never.sentence} 2.0 min ago: Index v, region 11111111 is 90 merged")


def test_the_fleet_is_counted_and_comes_worst_first() -> None:
    def sight(name: str, *readings: Reading) -> LastLook[TableSummary]:
        return LastLook(RegisteredTable(name=name, uri=f"/{name}"), TableSummary.of(health(*readings), ()), NOW)

    gone = LastLook(RegisteredTable(name="gone", uri="/g"), error=InvalidRequestError("no table", remedy="check"))
    sights = [
        sight("fine"), LastLook(RegisteredTable(name="awaited", uri="/a"), is_awaited=True),
        sight("warns", Reading(Signal.JOB_FAILURES, 2, "merge/table")), gone,
        sight("pages", Reading(Signal.CHECK_FAILED, 1)),
    ]  # fmt: skip

    rows = list_fleet(sights, [BrokenEntry(name="typo", problem="every_minutes: not a number")])

    assert [row.name for row in rows] == ["gone", "typo", "pages", "warns", "fine", "awaited"]
    assert [row.advice.colour for row in rows] == ["unknown", "unknown", "bad", "fair", "good", "unknown"]
    assert list(count_states(rows).items()) == [
        (FleetState.UNKNOWN, 3), (FleetState.FROZEN, 0), (FleetState.ATTENTION, 2), (FleetState.FINE, 1),
    ]  # fmt: skip
    assert "every_minutes: not a number" in rows[1].advice.sentence

"""What the checks take on: pure functions of what was read."""

from __future__ import annotations

import uuid

from memwal_core.base_table import IndexFacts
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.plan import MergeSurvey, SurveyedGeneration, SurveyedRegion, Verdict, plan_merge
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.quality.model import Check, CheckResult, Result, Stage, outcome_of
from memwal_core.quality.plan import VersionFacts, find_window, plan_after, plan_before, row_changes
from memwal_core.settings import MergeSettings

ONE, TWO = (RegionId(uuid.UUID(int=number)) for number in (1, 2))


def region(region_id: RegionId, *numbers: int, quarantined: dict[int, str] | None = None) -> SurveyedRegion:
    generations = tuple(SurveyedGeneration(number, f"memory://{number}", 10, 1) for number in numbers)
    return SurveyedRegion(region_id, 1, max(numbers) + 1, min(numbers) - 1, generations, quarantined or {})


def test_every_waiting_generation_is_audited_but_those_that_people_let_pass() -> None:
    survey = MergeSurvey("memory://t", 3, (region(TWO, 5), region(ONE, 2, 1)))

    plan = plan_before(survey, {(ONE, 2), (TWO, 4)})

    assert [audit.subject for audit in plan.audits] == [f"region {ONE} generation 1", f"region {TWO} generation 5"]
    assert [audit.subject for audit in plan.passed_by_people] == [f"region {ONE} generation 2"]
    assert plan.stage is Stage.BEFORE


def test_held_generation_ends_its_region_and_no_other() -> None:
    survey = MergeSurvey("memory://t", 3, (region(ONE, 1, 2, 3, quarantined={2: "key_not_null"}), region(TWO, 1, 2)))

    plan = plan_merge(survey, MergeSettings())

    shares = {share.region_id: share for share in plan.regions}
    assert dict(plan.marks) == {ONE: 1, TWO: 2}
    assert shares[ONE].verdict is Verdict.QUARANTINED
    assert shares[ONE].evidence == "generation 2: key_not_null"
    assert (shares[ONE].mergeable, shares[ONE].waiting, shares[ONE].stuck) == (1, 2, 2)
    assert shares[TWO].verdict is Verdict.COMPLETE


def test_hold_of_a_merged_generation_holds_nothing() -> None:
    survey = MergeSurvey("memory://t", 3, (region(ONE, 3, 4, quarantined={2: "late"}),))

    assert dict(plan_merge(survey, MergeSettings()).marks) == {ONE: 4}


def versions(*merged: int) -> list[VersionFacts]:
    return [
        VersionFacts(number, 10 * number, {ONE: progress} if progress else {})
        for number, progress in enumerate(merged, start=1)
    ]


def test_window_is_the_commit_of_the_last_merge() -> None:
    window = find_window(versions(0, 0, 2, 5, 5))

    assert window is not None
    assert (window.before.version, window.after.version) == (3, 4)
    assert [each.version for each in window.later] == [4, 5]
    assert window.spans == {ONE: (2, 5)}


def test_window_since_a_version_spans_several_merges() -> None:
    window = find_window(versions(0, 0, 2, 5, 5), since=2)

    assert window is not None
    assert (window.before.version, window.after.version) == (2, 4)
    assert window.spans == {ONE: (0, 5)}


def since_merge(*rows: int) -> list[tuple[int, int, int]]:
    found = [VersionFacts(1, 0, {})]
    found += [VersionFacts(number, count, {ONE: 1}) for number, count in enumerate(rows, start=2)]
    window = find_window(found)
    assert window is not None
    return row_changes(window)


def test_every_version_since_the_merge_is_compared_while_its_rows_are_others() -> None:
    assert since_merge(40) == []
    assert since_merge(40, 40) == [(3, 40, 40)]
    assert since_merge(40, 39, 38) == [(3, 40, 39), (4, 39, 38)]


def test_restored_rows_end_what_was_wrong_in_between() -> None:
    """The check could never pass again after what its runbook says, so the table stayed frozen (O4)."""
    assert since_merge(40, 39, 40) == [(4, 40, 40)]


def test_without_an_older_version_there_is_no_window() -> None:
    assert find_window(versions(5, 5)) is None
    assert find_window(versions(0)) is None


def test_indexes_without_an_exact_scan_are_named_and_not_questioned() -> None:
    indexes = [
        IndexFacts("__lance_mem_wal", "MemWal", ()),
        IndexFacts("id_idx", "BTree", (0,)),
        IndexFacts("title_idx", "Inverted", (1,)),
        IndexFacts("vec_idx", "IVF_PQ", (2,)),
    ]

    plan = plan_after("memory://t", versions(0), indexes, {0: "id", 1: "title", 2: "vec"})

    assert [(index.name, index.column, index.is_vector) for index in plan.indexes] == [
        ("id_idx", "id", False),
        ("vec_idx", "vec", True),
    ]
    assert list(plan.unquestioned or {}) == ["title_idx"]


def test_one_failed_check_blocks_and_skipped_ones_do_not() -> None:
    passed = CheckResult(Check.KEY_UNIQUE, Result.PASSED, "version 1")
    skipped = CheckResult(Check.INDEXED_ANSWER, Result.SKIPPED, "index a")
    failed = CheckResult(Check.ROW_ARITHMETIC, Result.FAILED, "version 1")

    assert outcome_of(()) is JobOutcome.NOTHING_TO_DO
    assert outcome_of((passed, skipped)) is JobOutcome.DONE
    assert outcome_of((passed, failed)) is JobOutcome.BLOCKED

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.aims import AIMS, judge
from bench.catalog import COMPARISONS
from bench.charts import Bar, bar_chart, line_chart
from bench.growth_fit import fit_growth
from bench.harness import ArmResult, CaseResult
from bench.page import CHARTS, draw, render, write_page
from bench.pinned.cores import IN_PROCESS, ONE
from bench.report import Circumstances, document, result_table, updated

DOCS = Path(__file__).parents[3] / "docs"


def measured(name, seconds, reference):
    return ArmResult(name, seconds, tuple(a / b for a, b in zip(seconds, reference, strict=True)))


def merge_floor(ratio):
    floor = (1.0, 2.0)
    own = tuple(ratio * each for each in floor)
    comparison = COMPARISONS["merge-floor"]
    arms = (measured("write_dataset", floor, floor), measured("memwal", own, floor))
    return {comparison: [CaseResult("some rows", 1, arms)]}


def as_document(results):
    return json.loads(json.dumps(document({"processor": "x"}, started="2026-01-01", full=False, results=results)))


@pytest.mark.parametrize(("power", "expected"), [(1, 1.0), (2, 2.0), (0, 0.0), (0.5, 0.5)])
def test_exponent_of_a_power_law_is_found(power, expected):
    sizes = [10, 100, 1000]
    growth = fit_growth(sizes, [3 * size**power for size in sizes])

    assert (growth.fitted, growth.last_step) == pytest.approx((expected, expected), abs=1e-9)


def test_fixed_cost_hides_in_the_fit_and_less_in_the_last_step():
    sizes = [10, 100, 10_000]
    growth = fit_growth(sizes, [1_000 + size for size in sizes])

    assert growth.fitted < growth.last_step < 1


def test_one_size_has_no_growth():
    assert fit_growth([10], [1.0]) is None


@pytest.mark.parametrize(("ratio", "verdict"), [(2.0, "reached"), (2.5, "reached"), (5.0, "missed by 2.00 times")])
def test_aim_is_judged_by_the_ratio_within_rounds_and_the_page_says_what_stands_in_the_way(ratio, verdict):
    results = as_document(merge_floor(ratio))
    (judged,) = [each for each in judge(results) if each.aim.comparison == "merge-floor"]
    page = render(results)

    assert judged.verdict == verdict
    assert (judged.aim.obstacle in page) is (ratio > judged.aim.limit)
    assert verdict in page


def test_aim_that_was_not_measured_is_said_to_be_so():
    verdicts = {each.verdict for each in judge(as_document({}))}

    assert verdicts == {"not measured"}


def test_aims_name_comparisons_and_arms_that_exist():
    for aim in AIMS:
        comparison = COMPARISONS[aim.comparison]
        assert {aim.arm, aim.against} - {None} <= {arm.name for arm in comparison.arms}, aim.text
        assert {aim.measure} <= {"", *(measure.name for measure in comparison.also)}, aim.text


@pytest.mark.parametrize(("mib", "verdict"), [(1536.0, "reached"), (3072.0, "missed by 2.00 times")])
def test_memory_is_judged_by_its_own_bound_and_not_by_a_ratio(mib, verdict):
    comparison = COMPARISONS["loop"]
    arms = tuple(
        replace(measured(arm.name, (1.0,), (1.0,)), also={"largest process MiB": (mib,)}) for arm in comparison.arms
    )
    results = as_document({comparison: [CaseResult("all", 1, arms)]})

    judged = [each for each in judge(results) if each.aim.comparison == "loop" and each.aim.against is None]
    assert {each.verdict for each in judged} == {verdict}
    assert f"| {mib:,.0f} | {verdict} |" in render(results)


@pytest.mark.parametrize(("added_s", "verdict"), [(0.25, "reached"), (0.6, "missed by 2.00 times")])
def test_what_an_arm_adds_is_judged_by_the_difference(added_s, verdict):
    here = (1.0, 2.0)
    arms = (measured(IN_PROCESS, here, here), measured(ONE, tuple(each + added_s for each in here), here))
    results = as_document({COMPARISONS["pinned"]: [CaseResult("small merge", 1, arms)]})

    (judged,) = [each for each in judge(results) if each.aim.added]
    assert (judged.ratio.median, judged.verdict) == (pytest.approx(added_s), verdict)


@pytest.mark.parametrize(("small_s", "verdict"), [((2.0, 4.0), "reached"), ((0.5, 1.0), "missed by 1.33 times")])
def test_large_case_is_judged_by_a_small_one(small_s, verdict):
    cases = [
        CaseResult(name, 1, (measured("memwal", samples, samples),))
        for name, samples in (("1 fragment", small_s), ("64 fragments", (1.0, 2.0)))
    ]
    results = as_document({COMPARISONS["merge-latency"]: cases})

    (judged,) = [each for each in judge(results) if each.aim.against_case == "1 fragment"]
    assert (judged.case, judged.verdict) == ("64 fragments", verdict)


def test_case_whose_small_one_is_missing_is_not_judged():
    cases = [CaseResult("64 fragments", 1, (measured("memwal", (1.0,), (1.0,)),))]
    results = as_document({COMPARISONS["merge-latency"]: cases})

    assert {each.verdict for each in judge(results) if each.aim.against_case == "1 fragment"} == {"not measured"}


def test_names_of_comparisons_and_of_their_arms_are_unique():
    for name, comparison in COMPARISONS.items():
        assert comparison.name == name
        assert len({arm.name for arm in comparison.arms}) == len(comparison.arms)


def test_arm_that_failed_is_shown_and_does_not_hide_the_others():
    comparison = COMPARISONS["merge-floor"]
    arms = (measured("write_dataset", (1.0,), (1.0,)), ArmResult("memwal", (), (), error="OSError: disk full"))
    results = {comparison: [CaseResult("some rows", 1, arms)]}

    assert "disk full" in str(list(result_table(comparison, results[comparison]).columns[2].cells))
    page = render(as_document(results))
    assert "failed: OSError: disk full" in page
    assert "| some rows | write_dataset | 1.00 |" in page


def test_growth_above_linear_is_named_with_its_reason():
    comparison = COMPARISONS["growth-merge-base-rows"]
    cases = [
        CaseResult(f"{size}", 1, (measured("memwal", (cost,), (cost,)),), size)
        for size, cost in ((1, 1.0), (10, 100.0))
    ]
    results = as_document({comparison: cases})

    page = render(results)
    assert "| 2.00 | 2.00 | above linear |" in page
    assert "Above linear, and why" in page
    assert set(draw(results)) == {"growth-base-rows.svg"}


def test_later_run_of_some_comparisons_replaces_these_and_keeps_the_others():
    def one(name, seconds):
        comparison = COMPARISONS[name]
        return {comparison: [CaseResult("some", 1, (measured("memwal", (seconds,), (seconds,)),))]}

    before = as_document(one("merge-floor", 1.0) | one("puts", 2.0))
    before |= {"minutes": 3.0, "left_out": ["puts: more", "scan: all"]}
    now = as_document(one("puts", 5.0)) | {"minutes": 1.5, "left_out": []}
    found = updated(before, now, list(COMPARISONS))

    seconds = {each["name"]: each["cases"][0]["arms"][0]["seconds"] for each in found["comparisons"]}
    assert seconds == {"merge-floor": [1.0], "puts": [5.0]}
    assert (found["minutes"], found["left_out"]) == (4.5, ["scan: all"])


def test_later_run_elsewhere_says_what_was_not_the_same():
    before = as_document(merge_floor(2.0))
    found = updated(before, {**before, "machine": {**before["machine"], "processor": "y"}}, list(COMPARISONS))

    assert found["machine"] == before["machine"]
    assert [each["differs"] for each in found["comparisons"]] == [{"processor": "y"}]
    assert "Not as above: processor y." in render(found)


def test_later_run_of_the_other_form_updates_nothing():
    before = as_document(merge_floor(2.0))
    with pytest.raises(ValueError, match="other form"):
        updated(before, {**before, "full": not before["full"]}, list(COMPARISONS))


def test_page_says_when_a_comparison_began_and_how_busy_the_machine_was():
    results = merge_floor(2.0)
    began = {comparison: Circumstances("2026-01-02T03:04:05", 0.5) for comparison in results}
    page = render(document({}, started="2026-01-01", full=False, results=results, began=began))

    assert "Begun 2026-01-02T03:04:05 at a load of 0.5." in page


def test_charts_are_the_same_each_time_and_escape_names():
    def bars():
        return bar_chart("t", [Bar("a & b", 1.0, "1"), Bar("c", 4.0, "4")])

    def lines():
        return line_chart("t", "x", {"a <b>": [(1, 1), (10, 20)]})

    assert bars() == bars()
    assert lines() == lines()
    assert "a &amp; b" in bars()
    assert "a &lt;b&gt;" in lines()


def test_page_and_charts_are_written_and_old_charts_go(tmp_path: Path):
    charts = tmp_path / CHARTS
    charts.mkdir()
    (charts / "former.svg").write_text("old")

    written = write_page(as_document(merge_floor(2)), tmp_path / "page.md", charts)

    assert [path.name for path in written] == ["page.md"]
    assert list(charts.iterdir()) == []


def test_committed_page_and_charts_are_what_the_committed_results_generate():
    results = json.loads((DOCS / CHARTS / "full.json").read_text())

    assert (DOCS / "benchmarks.md").read_text() == render(results)
    assert {path.name: path.read_text() for path in (DOCS / CHARTS).glob("*.svg")} == draw(results)

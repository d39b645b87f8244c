import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from bench.harness import Arm, Case, Comparison, Measure, run_case, spread
from bench.machine import machine_facts
from bench.report import document, facts_table, result_table
from testkit.clock import ManualClock


class Recorded:
    """Arms whose work takes as long as they say, on a clock of their own."""

    def __init__(self):
        self.clock = ManualClock()
        self.events = []

    def arm(self, name, *durations_s):
        remaining = iter(durations_s)

        @contextmanager
        def prepare(case, directory):
            assert list(directory.iterdir()) == []
            (directory / "left").write_text("behind")
            self.clock.advance(100)
            yield work
            self.clock.advance(100)
            self.events.append((name, case.data))

        def work():
            self.clock.advance(next(remaining))

        return Arm(name, "detail", prepare)


def comparison(*arms):
    return Comparison("sleep", "how long it sleeps", "nap", arms, lambda _full: [Case("one", 10, "data")])


def run(recorded, *arms, rounds, tmp_path):
    return run_case(comparison(*arms), Case("one", 10, "data"), rounds=rounds, scratch=tmp_path, clock=recorded.clock)


def test_arms_are_interleaved_and_each_round_begins_with_another(tmp_path: Path):
    recorded = Recorded()
    run(recorded, recorded.arm("a", *[1] * 4), recorded.arm("b", *[1] * 4), rounds=3, tmp_path=tmp_path)

    assert [name for name, _ in recorded.events] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert {data for _, data in recorded.events} == {"data"}
    assert list(tmp_path.iterdir()) == []


def test_only_the_work_counts_and_the_first_round_does_not(tmp_path: Path):
    recorded = Recorded()
    result = run(
        recorded, recorded.arm("a", 900, 1, 2, 4), recorded.arm("b", 900, 3, 3, 3), rounds=3, tmp_path=tmp_path
    )
    a, b = result.arms

    assert a.seconds == pytest.approx((0.1, 0.2, 0.4))
    assert b.seconds == pytest.approx((0.3, 0.3, 0.3))
    assert a.ratios == (1.0, 1.0, 1.0)
    assert b.ratios == pytest.approx((3.0, 1.5, 0.75))


def test_arm_that_did_not_do_its_work_is_reported_and_the_others_go_on(tmp_path: Path):
    recorded = Recorded()

    @contextmanager
    def lazy(case, directory):
        yield lambda: None
        raise AssertionError("nothing was done")

    for arms in (
        (recorded.arm("a", 9, 1, 1), Arm("lazy", "", lazy)),
        (Arm("lazy", "", lazy), recorded.arm("a", 9, 1, 1)),
    ):
        result = run(recorded, *arms, rounds=2, tmp_path=tmp_path)
        a, failed = sorted(result.arms, key=lambda arm: arm.name)

        assert a.seconds == pytest.approx((0.1, 0.1))
        assert len(a.ratios) == (2 if arms[0].name == "a" else 0)
        assert (failed.seconds, failed.error) == ((), "AssertionError: nothing was done")


def test_further_values_are_kept_beside_the_measure(tmp_path: Path):
    recorded = Recorded()

    @contextmanager
    def prepare(case, directory):
        yield lambda: {"seconds": 20.0, "MiB": 7.0}

    asked = Comparison(
        "nap", "?", "nap", (Arm("a", "", prepare),), lambda _: [], also=(Measure("MiB", "MiB"),), warm_up=False
    )
    result = run_case(asked, Case("one", 10, None), rounds=2, scratch=tmp_path, clock=recorded.clock)

    assert result.arms[0].seconds == (2.0, 2.0)
    assert result.arms[0].also == {"MiB": (7.0, 7.0)}


def test_no_further_round_begins_after_the_budget_once_there_are_enough(tmp_path: Path):
    recorded = Recorded()
    asked = comparison(recorded.arm("a", *[1] * 20))
    result = run_case(asked, Case("one", 10, "data"), rounds=15, scratch=tmp_path, clock=recorded.clock, budget_s=1_000)

    # 201 seconds a round, set-up included: five of them, the first of which does not count, are more than the budget.
    assert len(result.arms[0].seconds) == 4


def test_spread_is_median_and_range():
    shown = spread([3.0, 1.0, 8.0])

    assert (shown.median, shown.low, shown.high) == (3.0, 1.0, 8.0)


def test_document_holds_every_sample_and_survives_json(tmp_path: Path):
    recorded = Recorded()
    asked = comparison(recorded.arm("a", 1, 1, 3), recorded.arm("b", 2, 2, 2))
    result = run_case(asked, asked.cases(False)[0], rounds=2, scratch=tmp_path, clock=recorded.clock)
    facts = machine_facts(tmp_path)
    written = json.loads(json.dumps(document(facts, started="2026-01-01", full=False, results={asked: [result]})))

    assert written["machine"] == facts
    (case,) = written["comparisons"][0]["cases"]
    assert [arm["name"] for arm in case["arms"]] == ["a", "b"]
    assert case["arms"][1]["seconds"] == pytest.approx([0.2, 0.2])
    assert case["arms"][0]["seconds_spread"] == pytest.approx({"median": 0.2, "low": 0.1, "high": 0.3})


def test_table_shows_medians_ratios_and_details(tmp_path: Path):
    recorded = Recorded()
    asked = comparison(recorded.arm("a", 1, 1, 1), recorded.arm("b", 2, 2, 4))
    result = run_case(asked, asked.cases(False)[0], rounds=2, scratch=tmp_path, clock=recorded.clock)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(result_table(asked, [result]))
    shown = captured.get()

    assert "300.00 (200.00 - 400.00)" in shown
    assert "3.00 (2.00 - 4.00)" in shown
    assert "over 2 rounds" in shown
    assert "b: detail" in shown


def test_machine_facts_name_what_a_measurement_depends_on(tmp_path: Path):
    facts = machine_facts(tmp_path)

    assert {"processor", "usable cores", "memory", "file system", "pylance", "pyarrow", "python"} <= set(facts)
    assert all(facts.values())
    with (console := Console(width=100)).capture() as captured:
        console.print(facts_table(facts))
    assert facts["file system"] in captured.get()

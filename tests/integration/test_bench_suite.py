"""Each arm of the suite does its work on small tables, and notices when it was not done."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bench.comparisons.floor import Waiting, merge_job, synced_files, write_winners
from bench.comparisons.growth import GROWTHS, Shape
from bench.comparisons.loop import loop, make_loop
from bench.comparisons.merge import merge_insert_per_generation
from bench.comparisons.writing.puts import put_data
from bench.harness import Case, Comparison
from bench.isolated import LARGEST, PEAK, IsolatedError, run_isolated
from bench.tables import MadeOnce

SMALL = Shape(base_rows=200, generations=2, generation_rows=100, regions=2, indexed=True)


def trial(directory: Path, name: str) -> Path:
    made = directory / name
    made.mkdir()
    return made


@pytest.mark.parametrize("comparison", GROWTHS, ids=lambda each: each.name)
def test_growth_is_of_work_that_was_done(comparison: Comparison, tmp_path: Path) -> None:
    (arm,) = comparison.arms
    case = Case("small", 1, SMALL)

    with arm.prepare(case, trial(tmp_path, "done")) as work:
        work()
    with pytest.raises((AssertionError, IndexError)), arm.prepare(case, trial(tmp_path, "skipped")):
        pass


@pytest.mark.parametrize("prepare", [write_winners, merge_job, merge_insert_per_generation])
def test_ways_to_merge_do_their_work(prepare, tmp_path: Path) -> None:
    case = Case("small", 1, MadeOnce(partial(Waiting, base_rows=300, generations=2, generation_rows=100)))

    with prepare(case, trial(tmp_path, "done")) as work:
        work()
    with pytest.raises((AssertionError, ValueError)), prepare(case, trial(tmp_path, "skipped")):
        pass


def test_floor_of_the_wal_writes_the_bytes_of_its_entries(tmp_path: Path) -> None:
    case = Case("small", 3, put_data(50, 3))
    with synced_files(case, trial(tmp_path, "done")) as work:
        work()
        entries = {path.read_bytes() for path in (tmp_path / "done").glob("table/_mem_wal/*/wal/*.lance")}
        files = {path.read_bytes() for path in (tmp_path / "done" / "files").iterdir()}
        assert len(files) == 3
        assert files <= entries


@pytest.mark.slow
@pytest.mark.parametrize("how", ["loop:merge_insert", "loop:pylance_writer", "loop:memwal", "loop_delta:delta_merge"])
def test_each_way_round_the_loop_ends_with_the_newest_rows(how: str, tmp_path: Path) -> None:
    case = Case("small", 1, MadeOnce(partial(make_loop, base_rows=2_000, count=4, generations=2)))

    with loop(case, trial(tmp_path, "done"), how=how) as work:
        found = work()
    assert 0 < found["durable"] <= found["seconds"]
    assert found["written MiB"] > 0
    assert 0 < found[LARGEST] <= found[PEAK] * 1.5
    with pytest.raises(AssertionError, match="did not do its work"), loop(case, trial(tmp_path, "not"), how=how):
        pass


def test_failure_in_a_process_of_its_own_is_told_with_its_last_words() -> None:
    with pytest.raises(IsolatedError, match="no_such_module"):
        run_isolated("bench.no_such_module:nothing", {}, timeout_s=60)


def test_process_that_takes_too_long_is_ended_with_what_it_started() -> None:
    with pytest.raises(IsolatedError, match="took longer than 1 s"):
        run_isolated("subprocess:check_output", {"args": ["sleep", "600"]}, timeout_s=1)

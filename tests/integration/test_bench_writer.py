"""The comparisons of the writer do their work, and notice when it was not done."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.catalog import COMPARISONS
from bench.comparisons.writing.flushes import FLOATS, FLUSHES
from bench.comparisons.writing.puts import put_data
from bench.comparisons.writing.puts_together import PUTS_BY_DEFAULT, PUTS_TOGETHER
from bench.comparisons.writing.recovery import BUFFERED_MEMORY, RECOVERY, _Crashed
from bench.harness import Arm, Case
from bench.tables import MadeOnce, rows

_RNG = np.random.default_rng(1)
CASES = {
    PUTS_TOGETHER.name: Case("small", 16, put_data(5, 16)),
    PUTS_BY_DEFAULT.name: Case("small", 2, put_data(5, 2)),
    FLUSHES.name: Case("small", 1, [rows(np.arange(start, start + 50), _RNG, floats=FLOATS) for start in (0, 50)]),
    RECOVERY.name: Case(
        "small",
        1,
        {codec: MadeOnce(partial(_Crashed, entries=6, flushed=4, codec=codec)) for codec in ("lance", "arrow")},
    ),
}
ARMS = [
    pytest.param(CASES[comparison.name], arm, id=f"{comparison.name}-{arm.name}")
    for comparison in (PUTS_TOGETHER, PUTS_BY_DEFAULT, FLUSHES, RECOVERY)
    for arm in comparison.arms
]


@pytest.mark.parametrize(("case", "arm"), ARMS)
def test_each_arm_does_its_work_and_notices_when_it_was_not_done(case: Case, arm: Arm, tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    (tmp_path / "skipped").mkdir()
    with arm.prepare(case, tmp_path / "done") as work:
        sample = work()
    assert sample is None or all(value > 0 for value in sample.values())
    with pytest.raises((AssertionError, ValueError)), arm.prepare(case, tmp_path / "skipped"):
        pass


@pytest.mark.slow
def test_memory_of_buffered_rows_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    case = Case("small", 1, (5, 4_000))
    found: dict[str, Mapping[str, float]] = {}
    for arm in BUFFERED_MEMORY.arms:
        (tmp_path / arm.name).mkdir()
        with arm.prepare(case, tmp_path / arm.name) as work:
            found[arm.name] = work()
    assert 0.8 < found["rows"][BUFFERED_MEMORY.measure.name] < 2
    assert found.keys() == {"rows", "pylance", "memwal", "memwal+index"}
    assert found["memwal+index"][BUFFERED_MEMORY.measure.name] < 4


def test_comparisons_are_in_the_catalog() -> None:
    assert {*CASES, BUFFERED_MEMORY.name} <= COMPARISONS.keys()

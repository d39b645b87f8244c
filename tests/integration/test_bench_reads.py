"""Each arm of the comparisons of reads does its work, and notices when it was not done."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.comparisons.reads import LOOKUPS, SCAN_MEMORY, SCANS, read_data
from bench.comparisons.searches import TEXT_SEARCHES, VECTOR_SEARCHES, small_data
from bench.harness import Arm, Case, Comparison

READS = Case("small", 6, read_data(2_000, 2, floats=4, index=True))
SEARCHES = Case("small", 3, small_data())
ARMS = [
    (comparison, arm, case)
    for comparison, case in (
        (SCANS, READS),
        (LOOKUPS, READS),
        (VECTOR_SEARCHES, SEARCHES),
        (TEXT_SEARCHES, SEARCHES),
    )
    for arm in comparison.arms
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory beside which all trials share their tables."""
    return tmp_path_factory.mktemp("reads")


@pytest.mark.parametrize(
    ("comparison", "arm", "case"), ARMS, ids=[f"{comparison.name}-{arm.name}" for comparison, arm, _ in ARMS]
)
def test_arm_does_its_work_and_notices_when_it_was_not_done(
    comparison: Comparison, arm: Arm, case: Case, shared: Path
) -> None:
    with arm.prepare(case, shared / "done") as work:
        sample = work()
    assert (sample is not None) == bool(comparison.also)
    with pytest.raises(AssertionError), arm.prepare(case, shared / "skipped"):
        pass


@pytest.mark.slow
def test_memory_of_a_scan_is_that_of_a_process(shared: Path) -> None:
    for arm in SCAN_MEMORY.arms:
        with arm.prepare(READS, shared / "memory") as work:
            sample = work()
        assert isinstance(sample, dict)
        assert 50 < sample[SCAN_MEMORY.measure.name] < 2000

"""Power cuts lose no acknowledged row and break no command: S5.

One process does everything that a table lives through; ``testkit.powercut`` records it and says what a cut may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from testkit.powercut.cuts import OPERATIONS, PowerCuts
from testkit.powercut.operations import Names, Recording, SyncClass, Write
from testkit.powercut.record import RecordingFailedError, require_complete, temporary_directory

CUTS = 36
MANY_CUTS = 250
SHOWN = 5

Recorded = Callable[[int], PowerCuts]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    """Record each workload once."""
    with temporary_directory() as directory:
        yield cache(lambda workload: PowerCuts(directory / str(workload), workload))


def test_file_that_was_written_unnoticed_makes_a_recording_worthless() -> None:
    with temporary_directory() as directory:
        root = directory / "table"
        root.mkdir()
        recording = Recording(str(root), (Names((((0, "x"), 1),)), Write(1, 0, b"abc")), frozenset({0}), {})
        (root / "x").write_bytes(b"abc")
        require_complete(recording)
        (root / "x").write_bytes(b"xyz")
        with pytest.raises(RecordingFailedError, match="'x'"):
            require_complete(recording)


def test_power_cut_anywhere_loses_no_acknowledged_row(recorded: Recorded) -> None:
    cuts = list(recorded(0).many(CUTS))
    assert {cut.operation for cut in cuts} == set(OPERATIONS)
    failed = [str(cut) for cut in cuts if cut.problems]
    assert not failed, "\n".join(failed[:SHOWN])


@pytest.mark.parametrize("dropped", list(SyncClass))
def test_without_one_class_of_syncs_a_power_cut_loses_rows_or_the_table(recorded: Recorded, dropped: SyncClass) -> None:
    assert any(_is_lost(cut.problems) for cut in recorded(0).many(CUTS, without=[dropped]))


def _is_lost(problems: tuple[str, ...]) -> bool:
    """Whether a read of everything that was acknowledged fails, or shows other rows."""
    return any(problem.startswith(("open:", "read:")) for problem in problems)


@pytest.mark.long
@pytest.mark.parametrize("workload", range(4))
def test_many_power_cuts_lose_no_acknowledged_row(recorded: Recorded, workload: int) -> None:
    failed = [str(cut) for cut in recorded(workload).many(MANY_CUTS) if cut.problems]
    assert not failed, "\n".join(failed[:SHOWN])

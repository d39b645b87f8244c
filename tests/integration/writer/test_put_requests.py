"""No put of a busy table writer waits for more than its own write, whatever is checked and flushed meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from memwal_core.storage import open_store
from memwal_core.writer.claim.ownership import AHEAD_THREAD
from memwal_core.writer.schema_watch import LOOK_THREAD
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.regions import writer_settings

INTERVAL_S = 100.0
PUTS = 2_000
KEYS = 16
"""Enough that each put has rows of every region."""

SETTINGS = writer_settings(
    epoch_check_interval_s=INTERVAL_S,
    schema_check_interval_s=INTERVAL_S,
    background_flush=True,
    max_memtable_rows=50 * KEYS,
    max_memtable_age_s=1e6,
)
BESIDE = (AHEAD_THREAD, LOOK_THREAD, "memwal-flush")


def _is_beside(thread: str) -> bool:
    return thread.startswith(BESIDE)


def _checked() -> None:
    for thread in threading.enumerate():
        if thread.name in {AHEAD_THREAD, LOOK_THREAD}:
            thread.join(30)


@pytest.mark.req("WRT-79")
@pytest.mark.parametrize("regions", [1, 4])
def test_p6_thousands_of_puts_make_one_request_for_each_region_while_epoch_and_schema_are_checked(
    tmp_path: Path, regions: int
) -> None:
    table = make_people_table(str(tmp_path / "t"), settings=SETTINGS, buckets=regions)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    asked: list[tuple[str, Call]] = []
    store.add(Rule(lambda call: asked.append((threading.current_thread().name, call)), Moment.BEFORE, times=None))
    clock = ManualClock()
    beside: Counter[str] = Counter()
    rows = people(*range(KEYS))
    with TableWriter.open(with_clock(reopened(table, store, SETTINGS), clock)) as writer:
        writer.put(rows)
        for _ in range(PUTS):
            clock.advance(INTERVAL_S / 8)
            asked.clear()
            writer.put(rows)
            waited_for = [call.operation for thread, call in asked if not _is_beside(thread)]
            assert waited_for == ["put_parts_if_absent"] * regions
            _checked()
            beside.update(thread.partition("-")[2].split("-")[0] for thread, _ in asked if _is_beside(thread))
    # The checks and the flushes were made, beside the puts.
    assert beside["epoch"] > PUTS / 8
    assert beside["schema"] > PUTS / 8
    assert beside["flush"] > PUTS / 50

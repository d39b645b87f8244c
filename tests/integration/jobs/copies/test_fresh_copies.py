"""What is said of a copy that was just made: nothing that only its age explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.clock import SystemClock
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.observe.signals import Reading, Signal
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.people import people
from tests.integration.jobs.copies.places import Place, make_place, make_table


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place("links", tmp_path, None)


def reading(table: Table, signal: Signal) -> Reading:
    return max((each for each in table.health().readings if each.signal is signal), key=lambda each: each.value or 0)


def test_what_older_versions_needed_is_no_garbage_of_a_copy_before_its_first_collection(
    place: Place, clock: ManualClock
) -> None:
    """A backup paged for the merged MemTables of versions that had stayed with the original."""
    table = make_table(place)
    table.run(MergeRequest())
    table.run(CloneRequest(target=place.uri("copy.lance")))
    copy = place.open("copy.lance", clock)

    fresh = reading(copy, Signal.GARBAGE)
    clock.advance(copy.opened.settings.retention.history_s + 60)
    old = reading(copy, Signal.GARBAGE)

    assert (fresh.value, "until the first collection of this copy" in fresh.subject) == (0, True)
    assert old.value
    assert old.value > 0.1


def test_garbage_of_a_copy_counts_once_a_collection_ran(place: Place, clock: ManualClock) -> None:
    make_table(place).run(CloneRequest(target=place.uri("copy.lance")))
    copy = place.open("copy.lance", clock)
    copy.run(MergeRequest())
    copy.run(GcRequest(dry_run=False, wait=False))

    assert "of this copy" not in reading(copy, Signal.GARBAGE).subject


def test_claims_before_a_backup_are_not_taken_for_claims_of_the_last_hour(place: Place, clock: ManualClock) -> None:
    table = make_table(place)
    for number in range(3):
        table.writer(takeover="fence").put(people(*range(100 * number, 100 * number + 20)))
    before = reading(table, Signal.EPOCH_CHANGES)
    table.run(BackupRequest(target=place.uri("copy.lance")))

    assert before.value
    assert reading(place.open("copy.lance", clock), Signal.EPOCH_CHANGES).value == 0

"""Who may claim a region that has, or seems to have, a writer."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memwal_core.errors import ConflictError, FencedError, InvalidRequestError, UnavailableError
from memwal_core.format.paths import WRITERS_DIRECTORY
from memwal_core.writer import TableWriter, Takeover
from memwal_core.writer.claim.takeover import Releases, read_releases
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.readable import read_with
from testkit.tables.regions import blocking, writer_settings

SETTINGS = writer_settings(takeover_quiet_s=300)


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS, buckets=1)


def _open(table, **kwargs) -> TableWriter:
    return TableWriter.open(table, **kwargs)


@pytest.mark.req("WRT-01", "WRT-13")
def test_a_live_writer_is_left_alone_unless_fencing_is_asked_for(table) -> None:
    first = _open(table)
    first.put(people(1))
    with pytest.raises(ConflictError) as caught, _open(table) as second:
        second.put(people(2))
    assert caught.value.facts["writer_epoch"] == 1
    first.put(people(3))
    with _open(table, takeover="fence") as third:
        third.put(people(4))
        with pytest.raises(FencedError):
            first.put(people(5))


@pytest.mark.req("WRT-13")
def test_a_writer_that_claims_in_the_middle_of_another_claim_is_not_fenced_by_it(table) -> None:
    """Both had found the region without a writer; the later one fenced the other, which it must leave alone."""
    with _open(table) as first:
        first.put(people(1))
    store = FaultyStore(table.store)
    with (
        blocking(store, "put_if_absent", path=lambda path: "/manifest/" in path) as blocked,
        ThreadPoolExecutor() as pool,
    ):
        late = TableWriter.open(reopened(table, store, SETTINGS))
        claim = pool.submit(late.put, people(2))
        assert blocked.reached.wait(60)
        with _open(table) as writer:
            writer.put(people(3))
            blocked.release.set()
            with pytest.raises(ConflictError, match="another process claimed the region first"):
                claim.result(60)
            writer.put(people(4))


@pytest.mark.req("WRT-87")
def test_a_closed_writer_gives_its_region_back_at_once(table) -> None:
    for key in range(3):
        with _open(table) as writer:
            writer.put(people(key))
    with _open(table) as last:
        last.put(people(9))
        (region,) = last.writers.values()
        assert region.memtable.num_rows == 4


def test_a_crashed_writer_counts_as_dead_after_the_quiet_time(table) -> None:
    crashed = _open(table)
    crashed.put(people(1))
    soon = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=200))
    with pytest.raises(ConflictError), _open(with_clock(table, soon)) as writer:
        writer.put(people(2))
    later = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=301))
    with _open(with_clock(table, later)) as writer:
        assert writer.put(people(2)).rows == 1


def test_a_sign_of_life_in_the_future_is_not_waited_for(table) -> None:
    """The error said to wait 300 s, where only a clock's whole error would have done."""
    _open(table).put(people(1))
    before = ManualClock(datetime.now(tz=UTC) - timedelta(days=3))
    with (
        pytest.raises(ConflictError, match=r"lies 2592\d\d s ahead, so a clock is or was wrong") as caught,
        _open(with_clock(table, before)) as writer,
    ):
        writer.put(people(2))
    assert "wait" not in caught.value.remedy
    with _open(with_clock(table, before), takeover="fence") as writer:
        writer.put(people(2))


def test_a_note_of_an_older_epoch_does_not_hide_the_present_writer(table) -> None:
    _open(table).close()
    with _open(table) as closed:
        closed.put(people(1))
    live = _open(table)
    live.put(people(2))
    with pytest.raises(ConflictError), _open(table) as writer:
        writer.put(people(3))


def test_a_writer_that_was_fenced_unnoticed_does_not_say_that_it_gave_the_region_back(table) -> None:
    fenced = _open(table)
    fenced.put(people(1))
    (region,) = fenced.writers.values()
    live = _open(table, takeover="fence")
    live.put(people(2))

    fenced.close()

    assert read_releases(table.store, region.region_id) == Releases()
    live.close()
    assert read_releases(table.store, region.region_id) == Releases(2, ((2, 2),))


@pytest.fixture
def outage(table):
    """A region that was written and given back, in a store whose WAL does not answer."""
    with _open(table) as writer:
        writer.put(people(1))
    store = FaultyStore(table.store)
    store.fail(path=lambda path: "/wal/" in path, times=None)
    return store


def test_a_claim_that_could_not_be_finished_is_given_back(table, outage) -> None:
    """For five minutes every writer, the one that tried included, and the job flush were told of a live writer."""
    unlucky = TableWriter.open(reopened(table, outage, SETTINGS))
    with pytest.raises(UnavailableError):
        unlucky.put(people(2))

    with _open(table) as other:
        other.put(people(3))


def test_a_writer_tries_its_own_unfinished_claim_again_after_an_outage(table, outage) -> None:
    unlucky = TableWriter.open(reopened(table, outage, SETTINGS))
    outage.fail("put", path=lambda path: path.startswith(WRITERS_DIRECTORY), times=None)
    with pytest.raises(UnavailableError):
        unlucky.put(people(2))
    with pytest.raises(ConflictError, match="live writer"), _open(table) as other:
        other.put(people(3))
    outage.heal()

    with unlucky:
        unlucky.put(people(2))

    assert read_with(table.uri, unlucky.writers.values()).count() == 2


def test_an_unknown_takeover_is_refused(table) -> None:
    with pytest.raises(InvalidRequestError, match=r"known=\['fail', 'fence'\]"):
        _open(table, takeover="perhaps")
    assert set(Takeover) == {"fail", "fence"}

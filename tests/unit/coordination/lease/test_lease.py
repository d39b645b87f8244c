"""Taking, keeping and giving back leases."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pydantic import ValidationError

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseHeldError, LeaseKeeper, LeaseStore, LeaseTicket, parse_ticket
from memwal_core.errors import ConflictError, FencedError, InvalidRequestError, UnavailableError
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore
from memwal_core.register import VersionedRegister
from memwal_core.settings import LeaseSettings
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.faults.process_limits import largest_file

MERGE = JobKey("merge")
SETTINGS = LeaseSettings()


def leases(store=None, clock=None, settings=SETTINGS):
    return LeaseStore(
        store if store is not None else open_store("memory://t"),
        IdSource(),
        settings=settings,
        clock=clock if clock is not None else ManualClock(),
    )


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return FaultyStore(open_store("memory://t"))


@pytest.mark.req("LEASE-02")
def test_lease_lasts_five_minutes_by_default_and_as_long_as_set(clock):
    lease = leases(clock=clock).acquire(MERGE, "run-1")
    assert lease.document.expires_at - lease.document.acquired_at == timedelta(seconds=300)
    short = leases(clock=clock, settings=LeaseSettings(ttl_s=60, renew_after_s=20)).acquire(MERGE, "run-1")
    assert short.document.expires_at - short.document.acquired_at == timedelta(seconds=60)


def test_renewal_that_comes_after_the_end_is_refused_as_a_setting():
    with pytest.raises(ValidationError, match="renew_after_s"):
        LeaseSettings(ttl_s=60, renew_after_s=60)


@pytest.mark.req("LEASE-03", "G-11")
def test_leases_lie_where_no_job_looks_for_regions(store, clock):
    region_id = IdSource().region_id()
    table = leases(store, clock)
    table.acquire(MERGE, "run-1")
    table.acquire(JobKey("gc", str(region_id)), "run-1")
    table.acquire(JobKey.of_index("catchup", "vec idx/ä"), "run-1")
    table.acquire(JobKey.of_index("catchup", "score_btree"), "run-1")

    assert ManifestStore(store, IdSource()).region_ids() == []
    assert {path.split("/")[1] for path in (info.path for info in store.list_objects("_mem_wal"))} == {"_leases"}
    assert len(table.known_keys()) == 4
    assert JobKey("gc", str(region_id)) in table.known_keys()
    assert [table.read(key).document.fencing_token for key in table.known_keys()] == [1, 1, 1, 1]


@pytest.mark.req("LEASE-04", "LEASE-06")
def test_held_lease_is_refused_to_others_with_holder_and_end(store, clock):
    table = leases(store, clock)
    held = table.acquire(MERGE, "run-1")

    with pytest.raises(LeaseHeldError) as refused:
        table.acquire(MERGE, "run-2")

    assert refused.value.facts["holder"] == "run-1"
    assert refused.value.facts["expires_at"] == held.document.expires_at.isoformat()
    assert isinstance(refused.value, ConflictError)
    held.check()


@pytest.mark.req("LEASE-04", "LEASE-12")
def test_of_many_that_acquire_at_once_one_wins(store, clock):
    barrier = threading.Barrier(8)

    def acquire(number):
        table = leases(store, clock)
        barrier.wait()
        try:
            return table.acquire(MERGE, f"run-{number}")
        except LeaseHeldError:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [lease for lease in pool.map(acquire, range(8)) if lease is not None]

    assert len(won) == 1
    assert won[0].ticket.fencing_token == 1
    won[0].check()


def test_equal_requests_at_one_moment_have_one_winner_per_token(store, clock):
    """Same name, same time: without the attempt's own mark both would read their bytes back as theirs."""
    tokens = []
    barrier = threading.Barrier(4)

    def acquire(_):
        table = leases(store, clock)
        barrier.wait()
        tokens.append(table.acquire(MERGE, "run-1").ticket.fencing_token)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(acquire, range(4)))

    assert sorted(tokens) == [1, 2, 3, 4]


@pytest.mark.req("LEASE-05")
def test_token_rises_over_a_hundred_acquisitions_releases_and_expiries(store, clock):
    table, tokens = leases(store, clock), []
    for number in range(100):
        lease = table.acquire(MERGE, f"run-{number % 3}")
        tokens.append(lease.ticket.fencing_token)
        if number % 2:
            lease.release()
        else:
            clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
    assert tokens == list(range(1, 101))


@pytest.mark.req("LEASE-07")
def test_renewal_extends_and_keeps_the_token(store, clock):
    lease = leases(store, clock).acquire(MERGE, "run-1")
    clock.advance(200)
    lease.renew()
    stored = leases(store, clock).read(MERGE)
    assert stored.document.fencing_token == lease.ticket.fencing_token == 1
    assert stored.document.expires_at == clock.now() + timedelta(seconds=300)
    assert stored.version == 2


@pytest.mark.req("LEASE-07", "LEASE-10")
def test_renewal_after_a_takeover_fails_and_leaves_the_new_holder_alone(store, clock):
    table = leases(store, clock)
    late = table.acquire(MERGE, "run-1")
    clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
    new = table.acquire(MERGE, "run-2")

    with pytest.raises(FencedError) as fenced:
        late.renew()
    assert fenced.value.facts["stored_holder"] == "run-2"
    with pytest.raises(FencedError):
        late.check()
    assert late.release() is False
    new.check()


def test_holder_that_slept_until_old_versions_were_deleted_does_not_renew_its_lease(store, clock):
    """It wrote its renewal in a deleted place, took that for the newest version, and went on beside the next holder."""
    slept = leases(store, clock).acquire(MERGE, "slept")
    clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
    for number in range(5):
        leases(store, clock).acquire(MERGE, f"run-{number}").release()
    present = leases(store, clock).acquire(MERGE, "present")
    VersionedRegister(store, leases(store, clock).directory(MERGE), ".json").delete_before(9)

    with pytest.raises(FencedError):
        slept.progressed()

    assert leases(store, clock).read(MERGE).document == present.document


@pytest.mark.req("LEASE-08")
def test_release_keeps_the_document_and_ends_it(store, clock):
    table = leases(store, clock)
    with table.acquire(MERGE, "run-1"):
        clock.advance(10)
    stored = table.read(MERGE)
    assert stored.document.expires_at <= clock.now()
    assert stored.document.holder == "run-1"
    assert not [call for call in store.calls if call.operation.startswith("delete")]
    assert table.acquire(MERGE, "run-2").ticket.fencing_token == 2


@pytest.mark.req("LEASE-08")
def test_released_lease_cannot_be_used_again(store, clock):
    lease = leases(store, clock).acquire(MERGE, "run-1")
    lease.release()
    with pytest.raises(FencedError) as fenced:
        lease.check()
    assert fenced.value.facts["released"] is True


@pytest.mark.req("LEASE-09")
def test_release_that_fails_is_tolerated_and_the_lease_ends_by_itself(store, clock, caplog):
    table = leases(store, clock)
    lease = table.acquire(MERGE, "run-1")
    store.fail("put_if_absent", times=None)
    with caplog.at_level(logging.WARNING):
        assert lease.release() is False
    assert "will expire" in caplog.text
    healthy = leases(store.inner, clock)
    with pytest.raises(LeaseHeldError):
        healthy.acquire(MERGE, "run-2")
    clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
    assert healthy.acquire(MERGE, "run-2").ticket.fencing_token == 2


@pytest.mark.req("LEASE-09")
def test_run_that_filled_the_disk_gives_its_lease_back(tmp_path, clock):
    """Once there was room again, the next run was told for five minutes that another process held the lease."""
    table = leases(open_store(str(tmp_path)), clock)
    lease = table.acquire(MERGE, "run-1")
    clock.advance(SETTINGS.renew_after_s)
    lease.progressed()
    with largest_file(0):
        assert lease.release() is True
        with pytest.raises(UnavailableError):
            table.acquire(MERGE, "run-2")

    assert table.read(MERGE).document.released
    assert table.acquire(MERGE, "run-2").ticket.fencing_token == 2


def test_lease_leaves_nothing_but_its_versions(tmp_path, clock):
    table = leases(open_store(str(tmp_path)), clock)
    with table.acquire(MERGE, "run-1"), pytest.raises(LeaseHeldError):
        table.acquire(MERGE, "run-2")
    dropped = table.acquire(MERGE, "run-3")
    del dropped

    assert not [path for path in tmp_path.rglob(".*/*") if path.is_file()]


@pytest.mark.req("LEASE-41")
def test_lease_of_others_is_taken_only_after_the_margin(store, clock):
    table = leases(store, clock)
    table.acquire(MERGE, "run-1")
    clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s - 1)
    with pytest.raises(LeaseHeldError):
        table.acquire(MERGE, "run-2")
    clock.advance(1)
    assert table.acquire(MERGE, "run-2").ticket.fencing_token == 2


@pytest.mark.req("LEASE-41")
def test_lease_taken_by_a_clock_far_ahead_holds_nobody_and_one_a_little_ahead_does(store, clock):
    """It blocked its job for as long as the clock had been ahead: a day, or for ever."""
    ahead = ManualClock(clock.now() + timedelta(days=1))
    sleeper = leases(store, ahead).acquire(MERGE, "run-1")
    taken = leases(store, clock).acquire(MERGE, "run-2")
    assert taken.ticket.fencing_token == 2
    with pytest.raises(FencedError):
        sleeper.check()
    taken.release()
    leases(store, ManualClock(clock.now() + timedelta(seconds=SETTINGS.ttl_s))).acquire(MERGE, "run-3")
    with pytest.raises(LeaseHeldError):
        leases(store, clock).acquire(MERGE, "run-4")


YEAR_S = 365 * 86_400.0


@pytest.mark.req("LEASE-41")
def test_lease_renewed_while_a_clock_was_far_ahead_does_not_outlast_its_holder(store, clock):
    """It blocked its job for a year if its holder died before it gave the lease back."""
    dead = leases(store, clock).acquire(MERGE, "run-1")
    clock.jump_wall_time(YEAR_S)
    dead.renew()
    clock.jump_wall_time(-YEAR_S)
    leases(store, clock).acquire(MERGE, "run-2")
    with pytest.raises(FencedError):
        dead.check()


@pytest.mark.req("LEASE-41")
def test_renewal_after_a_clock_was_set_right_ends_in_its_time(store, clock):
    lease = leases(store, clock).acquire(MERGE, "run-1")
    clock.jump_wall_time(YEAR_S)
    lease.renew()
    clock.jump_wall_time(-YEAR_S)
    lease.renew()
    with pytest.raises(LeaseHeldError):
        leases(store, clock).acquire(MERGE, "run-2")
    clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
    leases(store, clock).acquire(MERGE, "run-2")


@pytest.mark.req("LEASE-41")
def test_lease_taken_by_a_clock_that_was_set_right_meanwhile_is_not_given_back_by_a_renewal(store, clock):
    clock.jump_wall_time(YEAR_S)
    lease = leases(store, clock).acquire(MERGE, "run-1")
    clock.jump_wall_time(-YEAR_S)
    lease.renew()
    lease.check()
    leases(store, clock).acquire(MERGE, "run-2")


@pytest.mark.req("LEASE-41")
def test_expiry_alone_does_not_fence(store, clock):
    """A slow job that nobody replaced goes on; that it may is decided by the token, not by a clock."""
    lease = leases(store, clock).acquire(MERGE, "run-1")
    clock.advance(3600)
    lease.check()
    assert leases(store, clock).read(MERGE).document.expires_at > clock.now()


def test_same_holder_takes_its_lease_again_and_fences_its_first_try(store, clock):
    table = leases(store, clock)
    first = table.acquire(MERGE, "run-1")
    second = table.acquire(MERGE, "run-1")
    second.check()
    with pytest.raises(FencedError):
        first.check()


@pytest.mark.req("LEASE-19")
def test_acquisition_that_always_loses_ends_with_a_conflict_after_growing_waits(store, clock):
    rival = VersionedRegister(store.inner, leases(store, clock).directory(MERGE), ".json")

    def be_first(call):
        if call.path.endswith(".json") and "version_hint" not in call.path:
            newest = rival.latest()
            document = b'{"holder": "rival", "fencing_token": %d, "acquired_at": "2026-01-01T00:00:00Z", '
            document += b'"expires_at": "2026-01-01T00:00:00Z"}'
            version = newest.version + 1 if newest else 1
            rival.create(version, document % version)

    store.add(Rule(be_first, Moment.BEFORE, frozenset({"put_if_absent"}), times=None))
    with pytest.raises(ConflictError, match="in every attempt"):
        leases(store, clock, LeaseSettings(max_attempts=6)).acquire(MERGE, "run-1")
    for longest, wait in zip((0.05, 0.1, 0.2, 0.4, 0.8), clock.sleeps, strict=True):
        assert longest / 2 <= wait <= longest


@pytest.mark.req("LEASE-16")
def test_acquisition_that_loses_twice_reads_again_and_wins(store, clock):
    rival = VersionedRegister(store.inner, leases(store, clock).directory(MERGE), ".json")
    freed = b'{"holder": "rival", "fencing_token": %d, "acquired_at": "2026-01-01T00:00:00Z", '
    freed += b'"expires_at": "2026-01-01T00:00:00Z"}'

    def be_first(call):
        newest = rival.latest()
        version = newest.version + 1 if newest else 1
        rival.create(version, freed % version)

    is_version = lambda path: "version_hint" not in path  # noqa: E731
    store.add(Rule(be_first, Moment.BEFORE, frozenset({"put_if_absent"}), is_version, times=2))
    assert leases(store, clock).acquire(MERGE, "run-1").ticket.fencing_token == 3


def test_lost_reply_to_an_acquisition_is_healed_by_asking_again(store, clock):
    store.lose_reply("put_if_absent", path=lambda path: "version_hint" not in path)
    table = leases(store, clock)
    with pytest.raises(UnavailableError):
        table.acquire(MERGE, "run-1")
    again = table.acquire(MERGE, "run-1")
    assert again.ticket.fencing_token == 2
    again.check()


@pytest.mark.parametrize("holder", ["", " ", "run \udcfc"])
def test_holder_without_a_name_is_refused(store, clock, holder):
    with pytest.raises(InvalidRequestError):
        leases(store, clock).acquire(MERGE, holder)
    assert leases(store, clock).read(MERGE) is None


class TestRenewal:
    """Renewing follows real progress (a hung job must lose its lease although its process lives)."""

    @pytest.mark.req("LEASE-07")
    def test_young_lease_is_not_renewed(self, store, clock):
        lease = leases(store, clock).acquire(MERGE, "run-1")
        clock.advance(SETTINGS.renew_after_s - 1)
        assert lease.renew_if_due() is False
        clock.advance(1)
        assert lease.renew_if_due() is True
        assert lease.renew_if_due() is False

    def test_job_that_makes_progress_keeps_its_lease_for_hours(self, store, clock):
        lease = leases(store, clock).acquire(MERGE, "run-1")
        for _ in range(200):
            clock.advance(60)
            lease.progressed()
            with pytest.raises(LeaseHeldError):
                leases(store, clock).acquire(MERGE, "run-2")

    def test_job_that_hangs_loses_its_lease_although_somebody_keeps_asking_for_renewal(self, store, clock, caplog):
        lease = leases(store, clock).acquire(MERGE, "run-1")
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                clock.advance(60)
                lease.renew_if_due()
        assert caplog.text.count("no progress") == 1
        assert leases(store, clock).acquire(MERGE, "run-2").ticket.fencing_token == 2
        with pytest.raises(FencedError):
            lease.check()

    def test_keeper_renews_from_its_thread_and_ends_with_its_block(self, store):
        renewed = threading.Event()

        class Counting:
            ticket = "1@merge/table:run-1"

            def renew_if_due(self):
                renewed.set()
                return True

        before = set(threading.enumerate())
        with LeaseKeeper(Counting(), every_s=0.001):
            assert renewed.wait(60)
        assert set(threading.enumerate()) <= before

    @pytest.mark.parametrize("error", [UnavailableError("no answer", remedy="retry"), ValueError("unforeseen")])
    def test_keeper_survives_what_may_pass_and_stops_at_a_lost_lease(self, caplog, error):
        asked, ended = [], threading.Event()

        class Failing:
            ticket = "1@merge/table:run-1"

            def renew_if_due(self):
                asked.append(1)
                if len(asked) == 1:
                    raise error
                ended.set()
                raise FencedError("lost", remedy="stop")

        with caplog.at_level(logging.WARNING), LeaseKeeper(Failing(), every_s=0.001):
            assert ended.wait(60)
        assert len(asked) == 2
        assert "retrying" in caplog.text


class TestTickets:
    """A lease travels from the task that took it to the tasks that work under it."""

    @pytest.mark.req("LEASE-42")
    @pytest.mark.parametrize("holder", ["run-1", "manual__2026-11-21T10:00:00+00:00", "a b@c/d:e"])
    def test_ticket_survives_text_and_dictionary(self, holder):
        ticket = LeaseTicket(JobKey("gc", str(IdSource().region_id())), holder, 7)
        assert parse_ticket(str(ticket)) == ticket
        assert LeaseTicket.from_dict(ticket.to_dict()) == ticket

    @pytest.mark.parametrize("text", ["", "merge/table:run", "0@merge/table:run", "1@merge:run", "x@merge/table:run"])
    def test_other_texts_are_refused(self, text):
        with pytest.raises(InvalidRequestError):
            parse_ticket(text)

    def test_dictionary_without_token_is_refused(self):
        with pytest.raises(InvalidRequestError):
            LeaseTicket.from_dict({"job": "merge"})

    @pytest.mark.req("LEASE-42", "LEASE-10")
    def test_task_with_a_ticket_works_until_somebody_else_takes_over(self, store, clock):
        ticket = leases(store, clock).acquire(MERGE, "run-1").ticket
        work = leases(store, clock).resume(parse_ticket(str(ticket)))
        work.check()
        clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s)
        leases(store, clock).acquire(MERGE, "run-2")
        with pytest.raises(FencedError):
            leases(store, clock).resume(ticket)
        with pytest.raises(FencedError):
            work.check()
        assert FencedError.exit_code == 5

    def test_ticket_for_a_lease_that_never_was_is_fenced(self, store, clock):
        with pytest.raises(FencedError):
            leases(store, clock).resume(LeaseTicket(MERGE, "run-1", 1))


def test_taking_checking_and_releasing_a_lease_costs_ten_requests(store, clock):
    """Only the version that stays is hinted at, and no write needs a look before it."""
    leases(store, clock).acquire(MERGE, "run-1").release()
    store.calls.clear()
    with leases(store, clock).acquire(MERGE, "run-2") as lease:
        lease.check()
    take, check = ["get", "head", "get", "put_if_absent", "head"], ["head", "get"]
    assert [call.operation for call in store.calls] == [*take, *check, "put_if_absent", "head", "put"]


def test_hints_keep_up_with_holders_that_die(store, clock):
    for number in range(5):
        leases(store, clock).acquire(MERGE, f"run-{number}")  # Never released.
        clock.advance(1000)
    store.calls.clear()
    stored = leases(store, clock).read(MERGE)
    assert (stored.version, stored.document.holder) == (5, "run-4")
    assert len(store.calls) <= 5


def test_release_and_renewal_of_a_lease_that_others_took_write_nothing(store, clock):
    mine = leases(store, clock).acquire(MERGE, "run-1")
    clock.advance(1000)
    theirs = leases(store, clock).acquire(MERGE, "run-2")
    with pytest.raises(FencedError):
        mine.renew()
    assert not mine.release()
    theirs.check()
    assert leases(store, clock).read(MERGE).document.holder == "run-2"

"""Token check and compare-and-swap: each catches what the other cannot, and both are needed.

The guarded document is a region manifest, the job removes a generation's record from it, as garbage
collection does. Each schedule runs with both layers, and with one of them left out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseStore
from memwal_core.errors import FencedError
from memwal_core.format.paths import manifest_directory, region_directory
from memwal_core.ids import IdSource
from memwal_core.region import FlushedGeneration, ManifestStore, drain, record_flush
from memwal_core.settings import LeaseSettings
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule

GC = JobKey("gc")
SETTINGS = LeaseSettings()
SKEW_S = 600


class Overwriting(FaultyStore):
    """A store without layer 2: whoever writes a version last has written it."""

    def put_if_absent(self, path, data):
        if path.endswith(".binpb"):
            for rule in [rule for rule in self._rules if rule.moment is Moment.BEFORE]:
                if not rule.matched:
                    rule.matched += 1
                    rule.action(None)
            self.inner.put(path, data)
        else:
            super().put_if_absent(path, data)


@dataclass
class Scene:
    """A region with generations 1 to 3, a late job and its successor."""

    store: FaultyStore
    clock: ManualClock
    layer_1: bool

    def __post_init__(self):
        self.ids = IdSource()
        self.region_id = self.ids.region_id()
        manifests = self.manifests(self.store.inner)
        manifests.create(self.region_id)
        for number in (1, 2, 3):
            record = FlushedGeneration(number, f"0000000{number}_gen_{number}")
            manifests.update(self.region_id, lambda stored, record=record: record_flush(stored, record, 0, 0))
        self.late = self.leases(self.store.inner).acquire(GC, "late")

    def manifests(self, store):
        return ManifestStore(store, self.ids, clock=self.clock)

    def leases(self, store):
        return LeaseStore(store, self.ids, settings=SETTINGS, clock=self.clock)

    def takeover(self, generation):
        """The lease runs out, on whatever clock; somebody else takes it and removes a generation."""
        self.clock.advance(SETTINGS.ttl_s + SETTINGS.expiry_margin_s + SKEW_S)
        lease = self.leases(self.store.inner).acquire(GC, "successor")
        self.manifests(self.store.inner).update(
            self.region_id, lambda stored: drain(stored, {generation}), check=lambda _: lease.check()
        )

    def late_drain(self, generation):
        check = (lambda _: self.late.check()) if self.layer_1 else None
        self.manifests(self.store).update(self.region_id, lambda stored: drain(stored, {generation}), check=check)

    @property
    def recorded(self):
        return [each.generation for each in self.manifests(self.store.inner).load(self.region_id).flushed_generations]

    def puts(self):
        directory = manifest_directory(self.region_id)
        return [c for c in self.store.calls if c.operation == "put_if_absent" and c.path.startswith(directory)]


def scene(*, layer_1=True, layer_2=True):
    inner = open_store("memory://t")
    return Scene((FaultyStore if layer_2 else Overwriting)(inner), ManualClock(), layer_1)


def takeover_between_check_and_put(where):
    where.store.add(
        Rule(
            lambda _: where.takeover(1),
            Moment.BEFORE,
            frozenset({"put_if_absent"}),
            lambda path: path.startswith(manifest_directory(where.region_id)),
        )
    )


@pytest.mark.req("LEASE-10", "LEASE-11", "GC-30")
def test_late_job_is_fenced_before_any_put():
    where = scene()
    where.takeover(1)
    with pytest.raises(FencedError):
        where.late_drain(2)
    assert where.recorded == [2, 3]
    assert where.puts() == []


@pytest.mark.req("LEASE-14")
def test_without_the_token_check_a_late_job_that_reads_again_commits():
    where = scene(layer_1=False)
    where.takeover(1)
    where.late_drain(2)
    assert where.recorded == [3]


@pytest.mark.req("LEASE-12", "LEASE-18")
def test_takeover_between_check_and_put_is_caught_by_the_swap_and_then_fenced():
    where = scene()
    takeover_between_check_and_put(where)
    with pytest.raises(FencedError):
        where.late_drain(2)
    assert where.recorded == [2, 3]
    assert len(where.puts()) == 1


@pytest.mark.req("LEASE-13")
def test_without_the_swap_a_takeover_between_check_and_put_is_lost():
    where = scene(layer_2=False)
    takeover_between_check_and_put(where)
    where.late_drain(2)
    assert where.recorded == [1, 3]


@pytest.mark.req("LEASE-15", "LEASE-41")
@pytest.mark.parametrize("skew_s", [-SKEW_S, 0, SKEW_S])
@pytest.mark.parametrize("between", [False, True])
def test_with_both_layers_no_schedule_commits_late_whatever_the_clocks_say(skew_s, between):
    where = scene()
    if between:
        takeover_between_check_and_put(where)
    else:
        where.takeover(1)
    where.clock.jump_wall_time(skew_s)
    with suppress(FencedError):
        where.late_drain(2)
    assert where.recorded == [2, 3]


@pytest.mark.req("LEASE-41")
@pytest.mark.parametrize("skew_s", [-SKEW_S, SKEW_S])
def test_clock_that_is_wrong_lets_two_hold_but_not_two_commit(skew_s):
    """A successor whose clock runs ahead takes a lease that is not over; the token decides all the same."""
    where = scene()
    ahead = ManualClock(where.clock.now())
    ahead.jump_wall_time(abs(skew_s))
    successor = LeaseStore(where.store.inner, where.ids, settings=SETTINGS, clock=ahead).acquire(GC, "successor")
    where.clock.jump_wall_time(min(0, skew_s))
    with pytest.raises(FencedError):
        where.late_drain(2)
    where.manifests(where.store).update(
        where.region_id, lambda stored: drain(stored, {1}), check=lambda _: successor.check()
    )
    assert where.recorded == [2, 3]


@pytest.mark.req("LEASE-20", "LEASE-36", "GC-30")
def test_guarded_job_takes_the_lease_reads_works_checks_swaps_deletes_and_releases():
    where = scene()
    where.late.release()
    where.store.calls.clear()
    lease_directory = "_mem_wal/_leases/gc/table"
    doomed = f"{region_directory(where.region_id)}/00000001_gen_1"
    with where.leases(where.store).acquire(GC, "run-1") as lease:
        where.manifests(where.store).update(
            where.region_id, lambda stored: drain(stored, {1}), check=lambda _: lease.check()
        )
        lease.check()
        where.store.delete_directory(doomed)

    def place(operation, path):
        return [
            number
            for number, call in enumerate(where.store.calls)
            if call.operation == operation and call.path.startswith(path)
        ]

    manifest = manifest_directory(where.region_id)
    lease_reads, lease_puts = place("get", lease_directory), place("put_if_absent", lease_directory)
    read, swap = place("get", manifest)[0], place("put_if_absent", manifest)[0]
    delete = place("delete_directory", doomed)[0]
    checks = [number for number in lease_reads if read < number < swap], [n for n in lease_reads if swap < n < delete]
    assert lease_puts[0] < read < swap < delete < lease_puts[-1]
    assert all(checks)


@pytest.mark.req("GC-30")
def test_token_lost_between_swap_and_deletion_stops_the_deletion():
    where = scene()
    where.late_drain(1)
    where.takeover(2)
    with pytest.raises(FencedError):
        where.late.check()

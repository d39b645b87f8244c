from __future__ import annotations

import pytest

from memwal_core.errors import ObjectExistsError, UnavailableError
from memwal_core.failpoints import Failpoint
from memwal_core.storage import open_store
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.rng import seeded_rng


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory://"))


def test_calls_are_recorded_in_order_failed_ones_too(store: FaultyStore) -> None:
    store.fail("put")
    store.put_if_absent("a", b"1")
    with pytest.raises(UnavailableError):
        store.put("b", b"2")
    list(store.list_objects(""))

    assert store.calls == [Call("put_if_absent", "a"), Call("put", "b"), Call("list_objects", "")]
    assert store.count() == 3
    assert store.count("put", "put_if_absent", path=lambda path: path == "a") == 1


def test_failure_before_the_effect_leaves_nothing(store: FaultyStore) -> None:
    store.fail("put_if_absent")

    with pytest.raises(UnavailableError):
        store.put_if_absent("a", b"1")

    assert store.head("a") is None
    store.put_if_absent("a", b"1")


def test_lost_reply_has_its_effect(store: FaultyStore) -> None:
    store.lose_reply("put_if_absent")

    with pytest.raises(UnavailableError):
        store.put_if_absent("a", b"1")

    assert store.get("a") == b"1"


def test_rule_acts_on_the_nth_matching_call_for_so_many_times(store: FaultyStore) -> None:
    store.fail("put", path=lambda path: path.startswith("wal/"), nth=2, times=2)
    outcomes = []
    for path in ("wal/1", "other", "wal/2", "wal/3", "wal/4"):
        try:
            store.put(path, b"x")
        except UnavailableError:
            outcomes.append(path)

    assert outcomes == ["wal/2", "wal/3"]


def test_lasting_rule_ends_when_healed(store: FaultyStore) -> None:
    store.fail(times=None)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            store.head("a")

    store.heal()

    assert store.head("a") is None


def test_rule_can_let_a_rival_act_in_between(store: FaultyStore) -> None:
    store.add(
        Rule(lambda call: store.inner.put_if_absent(call.path, b"rival"), Moment.BEFORE, frozenset({"put_if_absent"}))
    )

    with pytest.raises(ObjectExistsError):
        store.put_if_absent("a", b"mine")

    assert store.get("a") == b"rival"


def test_rule_can_crash_after_the_effect(store: FaultyStore) -> None:
    points = ArmedFailpoints()
    points.arm(Failpoint("put"))
    store.add(Rule(lambda call: points.hit(Failpoint(call.operation)), Moment.AFTER))

    with pytest.raises(SimulatedCrash):
        store.put("a", b"x")

    assert store.inner.get("a") == b"x"


def test_random_faults_repeat_with_the_seed_and_come_in_both_kinds() -> None:
    def run(seed: int) -> list[tuple[bool, bool]]:
        store = FaultyStore(open_store("memory://"))
        store.fail_randomly(seeded_rng(seed), 0.5, "put_if_absent")
        outcomes = []
        for number in range(100):
            try:
                store.put_if_absent(str(number), b"x")
                failed = False
            except UnavailableError:
                failed = True
            outcomes.append((failed, store.head(str(number)) is not None))
        return outcomes

    first = run(1)
    assert first == run(1) != run(2)
    assert set(first) == {(False, True), (True, True), (True, False)}
    assert 30 <= sum(failed for failed, _ in first) <= 65

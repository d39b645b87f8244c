from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator

import pytest

from memwal_core.storage.concurrent import map_concurrently, prefetched, read_ahead


def test_results_keep_the_order_of_the_items() -> None:
    gate = threading.Barrier(4)

    def meet(item: int) -> int:
        gate.wait()
        return item * item

    assert map_concurrently(meet, range(8), limit=4) == [item * item for item in range(8)]


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_calls_than_the_limit_are_under_way(limit: int) -> None:
    lock = threading.Lock()
    under_way = 0
    most = 0

    def call(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        with lock:
            under_way -= 1

    map_concurrently(call, range(200), limit=limit)

    assert 1 <= most <= limit


def test_first_error_is_raised_and_cancels_what_has_not_begun() -> None:
    begun: list[int] = []
    failed, never = threading.Event(), threading.Event()

    def call(item: int) -> int:
        begun.append(item)
        if item == 0:
            failed.set()
            raise LookupError("first")
        failed.wait(60)
        never.wait(0.01)  # Calls that take time leave the caller time to cancel the rest.
        return item

    with pytest.raises(LookupError, match="first"):
        map_concurrently(call, range(10_000), limit=2)

    assert len(begun) < 10_000


def test_calls_under_way_have_ended_when_the_error_is_raised() -> None:
    both = threading.Barrier(2)
    ended = threading.Event()

    def call(item: int) -> None:
        both.wait()
        if item == 0:
            raise LookupError
        ended.set()

    with pytest.raises(LookupError):
        map_concurrently(call, [0, 1], limit=2)

    assert ended.is_set()


@pytest.fixture
def heeds_interruptions() -> Iterator[None]:
    """A shell has what it starts in the background ignore them, and Spark leaves a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interruptions")
def test_interruption_of_the_caller_cancels_what_has_not_begun() -> None:
    """Ctrl-C in a long collection went on until every object was deleted."""
    begun: list[int] = []
    never = threading.Event()

    def call(item: int) -> None:
        begun.append(item)
        if item == 100:
            _thread.interrupt_main()
        never.wait(0.01)

    with pytest.raises(KeyboardInterrupt):
        map_concurrently(call, range(1000), limit=2)

    assert len(begun) < 1000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("memwal-io")]


def test_calls_within_calls_share_the_limit() -> None:
    """A doctor had 16 threads for each of 16 regions, and a watch of four tables 500."""
    lock, never = threading.Lock(), threading.Event()
    under_way = 0
    most = 0

    def call(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            threads = sum(thread.name.startswith("memwal-io") for thread in threading.enumerate())
            most = max(most, under_way, threads + 1)
        never.wait(0.001)
        with lock:
            under_way -= 1

    map_concurrently(lambda _: map_concurrently(call, range(20), limit=4), range(20), limit=4)

    assert most == 4


def test_a_call_within_a_call_takes_over_what_others_no_longer_need() -> None:
    all_begun, three = threading.Barrier(4), threading.Barrier(3)

    def call(item: int) -> None:
        all_begun.wait(60)
        if item == 0:
            others = [thread for thread in threading.enumerate() if thread.name.startswith("memwal-io")]

            def meet(inner: int) -> None:
                for thread in others if inner == 0 else ():
                    thread.join(60)
                if inner:
                    three.wait(60)

            map_concurrently(meet, range(7), limit=3)

    map_concurrently(call, range(4), limit=4)


def test_nothing_to_do_gives_nothing() -> None:
    assert map_concurrently(str, [], limit=4) == []


def test_error_of_a_single_item_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        map_concurrently(int, ["x"], limit=4)


def test_item_is_made_while_the_caller_holds_the_one_before() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in prefetched(items()):
        # The caller is not asked for anything, and yet the next item comes.
        assert number + 1 == len(made) or made[number + 1].wait(60)


def test_error_of_the_items_reaches_the_caller_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("second")

    ahead = prefetched(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="second"):
        next(ahead)


def test_caller_that_stops_leaves_no_thread_behind() -> None:
    ahead = prefetched(iter(range(10)))
    assert next(ahead) == 0
    ahead.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("memwal-prefetch")]


def test_items_that_fit_into_the_budget_are_read_together_and_come_in_order() -> None:
    three = threading.Barrier(3)

    def meet(item: int) -> int:
        three.wait(60)
        return item

    assert list(read_ahead(meet, [(item, 2) for item in range(6)], limit=3, budget=6)) == list(range(6))


def test_what_is_read_ahead_never_costs_more_than_the_budget_unless_it_is_one_item() -> None:
    begun: list[int] = []
    costs = [3, 3, 5, 20, 1, 1]

    def begin(item: int) -> int:
        begun.append(item)
        return item

    results = read_ahead(begin, list(enumerate(costs)), limit=8, budget=8)

    for done, item in enumerate(results):
        # Whoever takes a result still uses it: it counts until the next one is asked for.
        held = [costs[each] for each in begun if each >= item]
        assert sum(held) <= 8 or len(held) == 1
        assert item == done


def test_error_of_an_item_comes_in_its_place_and_later_items_are_not_begun() -> None:
    begun: list[int] = []

    def call(item: int) -> int:
        begun.append(item)
        if item == 1:
            raise LookupError("second")
        return item

    results = read_ahead(call, [(item, 1) for item in range(100)], limit=2, budget=100)

    assert next(results) == 0
    with pytest.raises(LookupError, match="second"):
        next(results)
    assert len(begun) < 100

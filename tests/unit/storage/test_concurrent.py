from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from memwal_core.storage.concurrent import map_concurrently, prefetched


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

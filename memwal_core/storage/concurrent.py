"""Many small requests at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar, cast

from memwal_core.storage.protocol import StoreKind

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

NEAR = frozenset({StoreKind.LOCAL, StoreKind.MEMORY})
"""Stores that answer sooner than a thread begins."""

_FEW = 16

_END: object = object()


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item], limit: int) -> list[_Result]:
    """Call a thread-safe function for each item, at most ``limit`` at a time; results keep the items' order.

    The first error cancels all calls that have not begun; it is raised when the running calls have
    ended, so that no request outlives this function.
    """
    pending = list(items)
    if limit <= 1 or len(pending) <= 1:
        return [function(item) for item in pending]
    with ThreadPoolExecutor(max_workers=min(limit, len(pending)), thread_name_prefix="memwal-io") as pool:
        futures = [pool.submit(function, item) for item in pending]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        failed = _first_failure(futures, done)
        if failed is not None:
            pool.shutdown(wait=True, cancel_futures=True)
            failed.result()
        return [future.result() for future in futures]


def at_most(kind: StoreKind, count: int, limit: int) -> int:
    """Return how many of some small requests to make at once."""
    return 1 if kind in NEAR and count <= _FEW else limit


def both(kind: StoreKind, one: Callable[[], _Item], other: Callable[[], _Result]) -> tuple[_Item, _Result]:
    """Return what two independent calls return; a distant store is asked both at once.

    No call outlives this function; the error of the first one is raised before that of the other.
    """
    if kind in NEAR:
        return one(), other()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="memwal-io") as pool:
        coming = pool.submit(other)
        return one(), coming.result()


def prefetched(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items while a thread prepares the next one; two items exist at a time."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="memwal-prefetch") as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield cast("_Item", item)


def read_ahead(
    function: Callable[[_Item], _Result], items: Sequence[tuple[_Item, int]], limit: int, budget: int
) -> Iterator[_Result]:
    """Yield the result for each item in order, while threads work on those that follow, at most ``limit`` at a time.

    Each item comes with its cost, for example bytes. What is under way or in use costs at most ``budget`` together, or
    is one item alone.
    """
    coming = deque(items)
    running: deque[tuple[Future[_Result], int]] = deque()
    spent = 0
    with ThreadPoolExecutor(max_workers=max(1, min(limit, len(coming))), thread_name_prefix="memwal-ahead") as pool:
        try:
            while coming or running:
                while coming and (not running or (len(running) < limit and spent + coming[0][1] <= budget)):
                    item, cost = coming.popleft()
                    running.append((pool.submit(function, item), cost))
                    spent += cost
                future, cost = running.popleft()
                yield future.result()
                spent -= cost
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _first_failure(futures: list[Future[_Result]], done: set[Future[_Result]]) -> Future[_Result] | None:
    return next((future for future in futures if future in done and future.exception() is not None), None)

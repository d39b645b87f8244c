"""Many small requests at the same time.

Calls nest: a function that ``map_concurrently`` runs may call it again, from any of its threads. All that come from one
outermost call share one ``_Threads``, which counts the threads that work for them, so that three levels of eight make
no 512. ``_place`` says for each thread whose ``_Threads`` it works for and the highest limit on the way down to it; a
``_Calls`` takes both over as it begins, in the thread of its caller, which works itself and so always goes on, even if
no thread is free. Each thread that it starts says the same of itself before it makes its first call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, cast

from memwal_core.storage.protocol import StoreKind

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

FAST_STORES = frozenset({StoreKind.LOCAL, StoreKind.MEMORY})
"""Stores that answer sooner than a thread begins."""

_FEW = 16

_END: object = object()


class _Threads:
    """How many threads calls within one another have together. Thread-safe."""

    def __init__(self) -> None:
        self._number = 1
        self._lock = threading.Lock()

    def take(self, limit: int) -> bool:
        with self._lock:
            if self._number >= limit:
                return False
            self._number += 1
            return True

    def give(self) -> None:
        with self._lock:
            self._number -= 1


class _Place(threading.local):
    """The calls that a thread works for: the threads of all of them, and the highest of their limits."""

    threads: _Threads | None = None
    limit: int = 0


_place = _Place()


class _Calls(Generic[_Item, _Result]):
    """Calls of a function that its caller makes, and threads beside it, as many as there may be when a call begins."""

    def __init__(self, function: Callable[[_Item], _Result], items: Sequence[_Item], limit: int) -> None:
        self._function = function
        self._items = items
        self._limit = limit
        self._threads = _place.threads or _Threads()
        self._most = max(limit, _place.limit)
        self._beside: list[threading.Thread] = []
        self._results: dict[int, _Result] = {}
        self._failures: dict[int, BaseException] = {}
        self._begun = 0
        self._lock = threading.Lock()

    def make(self) -> list[_Result]:
        """Make all calls, or raise the first error when those under way have ended."""
        before = _place.threads, _place.limit
        try:
            self._work()
            self._join()
        except BaseException:
            self._begun = len(self._items)
            self._join()
            raise
        finally:
            _place.threads, _place.limit = before
        if self._failures:
            raise self._failures.pop(min(self._failures))
        return [self._results[number] for number in range(len(self._items))]

    def _work(self) -> None:
        _place.threads, _place.limit = self._threads, self._most
        while (number := self._next()) is not None:
            try:
                self._results[number] = self._function(self._items[number])
            except Exception as error:  # noqa: BLE001 - the caller raises it
                self._failures[number] = error

    def _work_beside(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception; the caller raises it
            self._failures[len(self._items)] = error
        finally:
            self._threads.give()

    def _next(self) -> int | None:
        with self._lock:
            if self._failures or self._begun >= len(self._items):
                return None
            number = self._begun
            self._begun += 1
            is_more = self._begun < len(self._items) and len(self._beside) + 1 < self._limit
            if is_more and self._threads.take(self._most):
                self._start()
            return number

    def _start(self) -> None:
        thread = threading.Thread(target=self._work_beside, name="memwal-io")
        try:
            thread.start()
        except BaseException:
            self._threads.give()
            raise
        self._beside.append(thread)

    def _join(self) -> None:
        for thread in self._beside:  # One that starts another has not ended.
            thread.join()


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item], limit: int) -> list[_Result]:
    """Call a thread-safe function for each item, at most ``limit`` at a time; results keep the items' order.

    Calls within calls share the threads: all together are no more than the highest of their limits.

    The first error, or an interruption of the caller, cancels all calls that have not begun; it is raised when the
    running calls have ended, so that no request outlives this function.
    """
    pending = list(items)
    if limit <= 1 or len(pending) <= 1:
        return [function(item) for item in pending]
    return _Calls(function, pending, limit).make()


def at_most(kind: StoreKind, count: int, limit: int) -> int:
    """Return how many of some small requests to make at once."""
    return 1 if kind in FAST_STORES and count <= _FEW else limit


def run_two(kind: StoreKind, one: Callable[[], _Item], other: Callable[[], _Result]) -> tuple[_Item, _Result]:
    """Return what two independent calls return; a distant store is asked both at once.

    No call outlives this function; the error of the first one is raised before that of the other.
    """
    if kind in FAST_STORES:
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

"""Many small requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar, cast

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_END: object = object()


def map_concurrently(function: Callable[[_Item], _Result], items: Iterable[_Item], limit: int) -> list[_Result]:
    """Call a function for each item in threads, at most ``limit`` at a time.

    The first error cancels all calls that have not begun; it is raised when those under way have
    ended, so that no request outlives this function.

    Args:
        function: Called once per item; must be safe in several threads.
        items: Read to the end before the first call.
        limit: Number of threads, at least 1.

    Returns:
        The results in the order of the items.
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


def read_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items of which a thread makes the next one while the caller works on the last.

    Args:
        items: Used by one thread at a time; two of its items exist at once.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="memwal-ahead") as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield cast("_Item", item)


def _first_failure(futures: list[Future[_Result]], done: set[Future[_Result]]) -> Future[_Result] | None:
    return next((future for future in futures if future in done and future.exception() is not None), None)

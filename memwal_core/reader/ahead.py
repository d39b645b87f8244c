"""Reading the winning rows of many small generations, a few of them ahead of the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from memwal_core.reader.rows import RowRequest
from memwal_core.reader.winners import WinningRows

_AHEAD = 4
_SMALL_ROWS = 8192
"""A generation with more winning rows is streamed when its turn comes, so that few batches are in memory."""

_Read = tuple[WinningRows, "Future[list[pa.RecordBatch]] | None"]


def read_winners(generations: Sequence[WinningRows], request: RowRequest) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (generation, rows) of generations one after another.

    Args:
        generations: In the order wanted.
        request: Which part of the rows.

    Raises:
        ObjectNotFoundError: A file is gone.
        UnavailableError: Storage failed.
        InvalidRequestError: Lance does not accept the filter.
    """
    needed = [each for each in generations if len(each.live)]
    if len(needed) <= 1:
        for each in needed:
            yield from ((each.rows.source.generation, batch) for batch in each.read(request))
        return
    pool = ThreadPoolExecutor(max_workers=min(_AHEAD, len(needed)), thread_name_prefix="memwal-read")
    try:
        coming: deque[_Read] = deque()
        left = iter(needed)
        for each in left:
            coming.append(_begun(pool, each, request))
            if len(coming) == _AHEAD:
                break
        while coming:
            each, begun = coming.popleft()
            batches = each.read(request) if begun is None else begun.result()
            following = next(left, None)
            if following is not None:
                coming.append(_begun(pool, following, request))
            yield from ((each.rows.source.generation, batch) for batch in batches)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begun(pool: ThreadPoolExecutor, each: WinningRows, request: RowRequest) -> _Read:
    if len(each.live) > _SMALL_ROWS or each.rows.is_held(request):
        return each, None
    return each, pool.submit(lambda: list(each.read(request)))

"""Prefetching the winning rows of many small generations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from memwal_core.reader.rows.generation_rows import RowRequest
from memwal_core.reader.rows.winners import WinningRows

_PREFETCHED = 4
_SMALL_ROWS = 8192
"""A generation with more winning rows is streamed in its turn, to keep only a few batches in memory."""

_Read = tuple[WinningRows, "Future[list[pa.RecordBatch]] | None"]


def read_winners(generations: Sequence[WinningRows], request: RowRequest) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (generation, rows), one generation after another, in the order given."""
    needed = [each for each in generations if len(each.live)]
    if len(needed) <= 1:
        for each in needed:
            yield from ((each.rows.source.generation, batch) for batch in each.read(request))
        return
    pool = ThreadPoolExecutor(max_workers=min(_PREFETCHED, len(needed)), thread_name_prefix="memwal-read")
    try:
        coming: deque[_Read] = deque()
        left = iter(needed)
        for each in left:
            coming.append(_begun(pool, each, request))
            if len(coming) == _PREFETCHED:
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
    if len(each.live) > _SMALL_ROWS or each.rows.is_cached(request):
        return each, None
    return each, pool.submit(lambda: list(each.read(request)))

"""Choose how to find the rows of some keys: what each way would read, and which is the cheapest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memwal_core.base_table.keys.condition import one_of, within
from memwal_core.base_table.keys.key_index import ColumnSizes, KeyBounds
from memwal_core.base_table.keys.spans import Spans
from memwal_core.format.columns import ROW_NUMBER_BITS
from memwal_core.text import show_bytes, show_count

SCAN = "scan"

_MOST_SPANS = 128
_MOST_VALUES = 10_000
"""Terms of a condition, which is SQL text that Lance parses and asks its index about one by one."""

_CHUNK_BYTES = 3 << 10
"""What Lance reads of a column for a single row: the smallest part that it can decode."""

_OPEN_REQUESTS = 2
"""Requests before the first value of a column of a file: the file's end, the column's description."""

_FILE_REQUESTS = _OPEN_REQUESTS + 1

_ZONES_REQUESTS, _PAGES_REQUESTS = 3, 7
"""Requests for the bounds of an index: its files' ends, and the columns of bounds."""

_LARGEST_READ = 8 << 20

_WORTHWHILE = 0.75
_SMALLEST_VALUE = 1 / 8


@dataclass(frozen=True, slots=True)
class Way:
    """One way to find the rows.

    Attributes:
        name: ``scan``, or the kind and name of the index.
        condition: What Lance is asked, see ``KeyScan``; empty for all rows.
        detail: The facts behind the forecast.
    """

    name: str
    condition: str
    read_bytes: int
    requests: int
    detail: str

    def cost(self, request_bytes: int) -> int:
        """Return the bytes that take as long to read as this way, if a request takes as long as ``request_bytes``."""
        return self.read_bytes + self.requests * request_bytes

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"way": self.name, "bytes": self.read_bytes, "requests": self.requests, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """The way chosen, the reason, and all ways with what they would read, the cheapest first."""

    chosen: Way
    reason: str
    ways: tuple[Way, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"way": self.chosen.name, "reason": self.reason, "ways": [way.to_dict() for way in self.ways]}


def only_scan(reason: str) -> SearchChoice:
    """Return the choice to read the keys of all rows, without a forecast."""
    return SearchChoice(Way(SCAN, "", 0, 0, "the keys of all rows"), reason)


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """What a choice is made from.

    Attributes:
        rows: Fragment -> physical rows, of the fragments to search.
    """

    rows: Mapping[int, int]
    sizes: ColumnSizes
    key_columns: int


def choose_way(facts: SearchFacts, indexes: Iterable[tuple[KeyBounds, Spans]], request_bytes: int) -> SearchChoice:
    """Choose the cheapest way; each index comes with the values that its column has in the wanted keys.

    An index must save a quarter of a scan, because a scan is one pass that joins and writes as well.
    """
    scan = scan_way(facts)
    ways = [scan]
    for index, spans in indexes:
        ways.extend(_index_ways(facts, index, spans))
    ways.sort(key=lambda way: way.cost(request_bytes))
    cheapest = ways[0]
    chosen = cheapest if cheapest.cost(request_bytes) <= _WORTHWHILE * scan.cost(request_bytes) else scan
    shown = "; ".join(
        f"{way.name} {show_bytes(way.read_bytes)} in {show_count(way.requests, 'request')}" for way in ways
    )
    return SearchChoice(chosen, f"{chosen.name}, {chosen.detail} ({shown})", tuple(ways))


def scan_way(facts: SearchFacts) -> Way:
    """Return what reading the keys of all rows costs."""
    size, requests = _whole(facts, facts.rows)
    rows = sum(facts.rows.values())
    return Way(
        SCAN, "", size, requests, f"the keys of {show_count(rows, 'row')} in {show_count(len(facts.rows), 'fragment')}"
    )


def _whole(facts: SearchFacts, fragments: Iterable[int]) -> tuple[int, int]:
    sizes = [facts.rows[each] * facts.sizes.row_bytes for each in fragments]
    size = sum(sizes) + len(sizes) * facts.sizes.fragment_bytes
    return int(size), sum(_FILE_REQUESTS + int(each // _LARGEST_READ) for each in sizes)


def _index_ways(facts: SearchFacts, index: KeyBounds, spans: Spans) -> Iterator[Way]:
    """Yield the ways to use an index: by spans around values that lie together, and by the values themselves."""
    if not len(index.lows) or not len(spans):
        return
    joined = spans.joined(index.lows, index.highs, _MOST_SPANS)
    if len(joined) < len(spans) or not spans.are_values:
        yield _forecast(facts, index, joined, within(index.column, joined.pairs()), wanted=len(spans))
    if spans.are_values and len(spans) <= _MOST_VALUES:
        yield _forecast(facts, index, spans, one_of(index.column, spans.lows.tolist()))


def _forecast(facts: SearchFacts, index: KeyBounds, spans: Spans, condition: str, wanted: int | None = None) -> Way:
    """Forecast what a condition reads: the index, the rows that it names, and fragments that it does not cover."""
    hit = spans.hit(index.lows, index.highs)
    uncovered = [fragment for fragment in facts.rows if fragment not in index.fragments]
    rest_bytes, rest_requests = _whole(facts, uncovered)
    if index.owners.size:
        size, requests = _zones(facts, index, hit)
        unit, fixed = "zones", _ZONES_REQUESTS
    else:
        size, requests = _pages(facts, index, hit, spans, wanted)
        unit, fixed = "pages", _PAGES_REQUESTS
    name = f"{index.kind} {index.name}" + (" by value" if wanted is None else " by span")
    detail = f"{int(hit.sum()):,} of {len(hit):,} {unit} of index {index.name}"
    if uncovered:
        detail += f", and {show_count(len(uncovered), 'fragment')} that it does not cover"
    return Way(name, condition, int(index.fixed_bytes + size + rest_bytes), fixed + requests + rest_requests, detail)


def _zones(facts: SearchFacts, index: KeyBounds, hit: npt.NDArray[np.bool_]) -> tuple[float, int]:
    inside = hit & np.isin(index.owners, list(facts.rows))
    rows = int(index.rows[inside].sum())
    touched = len(np.unique(index.owners[inside]))
    size = rows * facts.sizes.row_bytes + touched * facts.sizes.fragment_bytes
    return size, 2 * touched + max(touched, _runs(inside)) + int(size // _LARGEST_READ)


def _pages(
    facts: SearchFacts, index: KeyBounds, hit: npt.NDArray[np.bool_], spans: Spans, wanted: int | None
) -> tuple[float, int]:
    """Forecast pages of the index, and chunks of the key columns for the rows that they name.

    Rows are taken to lie as far apart as those of one page do.
    """
    pages = int(hit.sum())
    rows = int(index.rows[hit].sum())
    if wanted is None and facts.key_columns == 1:
        rows = min(rows, len(spans))
    covered = sum(facts.rows[each] for each in facts.rows if each in index.fragments)
    column_bytes = covered * facts.sizes.row_bytes
    chunks = column_bytes / _CHUNK_BYTES
    chunk_rows = max(1, int(_CHUNK_BYTES / max(facts.sizes.row_bytes, _SMALLEST_VALUE)))
    in_page = len(np.unique(index.sample // np.uint64(chunk_rows)))
    apart = pages * _expected_distinct(rows / max(1, pages), in_page) if in_page else float(rows)
    read = _expected_distinct(apart, chunks)
    owners = len(np.unique(index.sample >> ROW_NUMBER_BITS))
    touched = min(len(index.fragments), int(np.ceil(apart)), pages * max(1, owners))
    joins = 1 + int(facts.sizes.joined_bytes // _CHUNK_BYTES)
    share = min(1.0, read / chunks) if chunks else 1.0
    size = pages * index.page_bytes + min(column_bytes, read * _CHUNK_BYTES) + touched * facts.sizes.fragment_bytes
    described = sum(_expected_distinct(pages, each) for each in index.disk_pages)
    # As counted: a condition of several ranges reads the pages of each but one twice, one of values or one range once.
    runs = _runs(hit) if wanted is None else max(0, 2 * _runs(hit) - 1)
    requests = len(index.disk_pages) * runs + described + max(touched, read * (1.0 - share) ** joins)
    return size, int(requests) + _OPEN_REQUESTS * touched


def _runs(hit: npt.NDArray[np.bool_]) -> int:
    """Return how many requests neighbours make that are read together."""
    return int(hit[:1].sum()) + int((hit[1:] & ~hit[:-1]).sum())


def _expected_distinct(picks: float, among: float) -> float:
    """Return how many of some things are picked at least once if each pick is random."""
    return among * (1.0 - float(np.exp(-picks / among))) if among > 0 else 0.0

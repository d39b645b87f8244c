"""Find the base rows that winners supersede, many fragments at once.

Memory: as many keys as the unit allows at once, the hits in some million rows, and a part of the rows' keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.base_table.commit.row_changes import DeletionTarget, FragmentChange
from memwal_core.base_table.commit.superseding import KeyScan, supersede
from memwal_core.base_table.keys.fingerprints import count_distinct_here
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import CorruptionError, InternalError
from memwal_core.jobs.merge.work.units import KeyPart, SearchUnit

LoadKeys = Callable[[KeyPart], pa.Table]
"""Returns the keys of a part."""


def keys_in_memory(part: KeyPart) -> pa.Table:
    """Return keys that were never staged."""
    if part.table is None:
        raise InternalError("the keys of a unit are not in memory", remedy="report this", path=part.path)
    return part.table


def search_unit(unit: SearchUnit, table: TableReader, load: LoadKeys) -> Iterator[FragmentChange]:
    """Find superseded rows and write the deletion vectors that remove them; yield one change per fragment.

    A ``CorruptionError`` means that one key was written to two regions, or that a fragment contradicts the
    table.
    """
    rounds = list(_rounds(unit))
    if unit.checks_keys:
        _check_exclusive(unit, load)
    searches = [_search(unit, rounds[0], load)] if len(rounds) == 1 else _Searches(unit, rounds, load)
    scan = KeyScan(unit.key, unit.condition, concurrency=table.settings.storage.concurrency)
    target = DeletionTarget(table.store, unit.attempt)
    yield from supersede(table.dataset(unit.version), unit.fragments, searches, scan, target)


class _Searches:
    """Searches of bounded size, loaded anew each time that they are iterated."""

    def __init__(self, unit: SearchUnit, rounds: Sequence[list[KeyPart]], load: LoadKeys) -> None:
        self._unit = unit
        self._rounds = rounds
        self._load = load

    def __iter__(self) -> Iterator[KeySearch]:
        return (_search(self._unit, parts, self._load) for parts in self._rounds)


def _rounds(unit: SearchUnit) -> Iterator[list[KeyPart]]:
    """Pack the parts into rounds of bounded size, at least one part each."""
    parts: list[KeyPart] = []
    size = 0
    for part in unit.keys:
        if parts and size + part.size_bytes > unit.key_bytes:
            yield parts
            parts, size = [], 0
        parts.append(part)
        size += part.size_bytes
    yield parts


def _search(unit: SearchUnit, parts: list[KeyPart], load: LoadKeys) -> KeySearch:
    return KeySearch(pa.concat_tables([load(part) for part in parts]), unit.key)


def _check_exclusive(unit: SearchUnit, load: LoadKeys) -> None:
    """Check that no two regions wrote the same key, because both rows would become visible."""
    rows = sum(part.rows for part in unit.keys)
    if not unit.key or count_distinct_here(lambda: (load(part).select(unit.key) for part in unit.keys), rows) == rows:
        return
    rounds = list(_rounds(unit))
    for number, parts in enumerate(rounds):
        keys = pa.concat_tables([load(part) for part in parts])
        repeated = keys.num_rows - len(last_row_per_key(keys, unit.key))
        search = KeySearch(keys, unit.key)
        repeated += sum(int(search.found(load(part)).sum()) for later in rounds[number + 1 :] for part in later)
        if repeated:
            raise keys_of_several_regions(repeated, unit.key)


def keys_of_several_regions(repeated: int, key: Sequence[str]) -> CorruptionError:
    """Return the error that says that some keys were written to several regions."""
    return CorruptionError(
        "keys were written to more than one region, so it is unknown which row is the newest",
        remedy="merge the regions one after the other, that of the newer rows last; the region spec uses columns "
        "outside of the key, or a writer ignores it",
        repeated=repeated,
        key=list(key),
    )

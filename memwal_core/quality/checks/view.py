"""What a reader sees of the whole table, compared with what base table and flushed MemTables say it must see.

The expectation is computed here from keys and rows alone, newest wins; it shares neither plans, nor key filters, nor
the merging of sources with the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TableReader, translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.deduplicate import NewestRows, deduplicate
from memwal_core.errors import CorruptionError, ObjectNotFoundError, UnavailableError
from memwal_core.flushed.read import KeyedGeneration, MergeTarget, open_generation, read_keys
from memwal_core.format.paths import generation_path
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.native.casting import no_rows
from memwal_core.native.python_values import times_as_text
from memwal_core.reader import Consistency, Survey, Surveyor
from memwal_core.reader.lookup.key_guard import StoredFilters
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.view import TableView
from memwal_core.region import ManifestStore

ABSENT = "no row"
_ATTEMPTS = 3
_Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Sight:
    """One question to the reader, its answer, and the answer that it must give."""

    question: str
    seen: str
    expected: str


@dataclass(frozen=True, slots=True)
class ViewSights:
    """A table as its readers see it.

    Attributes:
        sights: The number of rows, and samples of rows that are written, deleted and untouched.
    """

    version: int
    generations: int
    sights: tuple[Sight, ...]


@dataclass(frozen=True, slots=True)
class _Overlay:
    """The unmerged generations of one region.

    Attributes:
        generations: Ascending.
        newest: The newest row of each of their keys.
    """

    generations: tuple[KeyedGeneration, ...]
    newest: NewestRows

    def rows(self, numbers: npt.NDArray[np.int64], target: MergeTarget) -> Iterator[_Row]:
        """Yield rows, with the columns that their generation has."""
        for generation, here in zip(self.generations, self.newest.by_source(numbers), strict=True):
            for batch in generation.batches(here, target.without(generation.mapping.missing)):
                yield from _rows(pa.Table.from_batches([batch]))


def look_at_view(table: TableReader, manifests: ManifestStore, samples: int) -> ViewSights:
    """Ask the reader for the number of rows and for samples, and compute the same answers independently.

    Raises:
        CorruptionError: A file is missing for good, or a flushed MemTable contradicts the table.
        UnavailableError: Storage failed, or generations were collected each time. Try again.
    """
    missing = ""
    for _ in range(_ATTEMPTS):
        survey = Surveyor(table, manifests).survey(Consistency.LATEST)
        survey.require_whole()
        try:
            return _sights(table, survey, samples)
        except ObjectNotFoundError as error:
            # It may have been merged and collected meanwhile; but then the next survey no longer needs it.
            if str(error) == missing:
                raise CorruptionError(
                    "a file that readers need is missing",
                    remedy="run `memwal doctor`, which names what is damaged and what restores it",
                    **error.facts,
                ) from error
            missing = str(error)
    raise UnavailableError(
        "flushed MemTables vanished each time the table was read", remedy="run the checks again", table=table.uri
    )


def _sights(table: TableReader, survey: Survey, samples: int) -> ViewSights:
    survey.state.require_primary_key()
    target, base = merge_target(survey.state), table.dataset(survey.state.version)
    view = TableView(table, survey, StoredFilters(table.store))
    overlays = _overlays(table, survey, target)
    keys = pa.schema([target.schema.field(name) for name in target.key])
    changed = pa.concat_tables(
        [no_rows(keys), *(each.newest.keys_of(each.newest.last).cast(keys) for each in overlays)]
    )
    untouched = _untouched(base, changed, target)
    written = sum(len(each.newest.live) for each in overlays)
    sights = [Sight("rows", str(view.scan(ScanRequest(columns=target.key)).count()), str(untouched.size + written))]
    expected: list[_Row] = []
    for each in overlays:
        expected += each.rows(_spread(each.newest.live, samples // len(overlays) + 1), target)
    with translated("read the base table", table.uri, version=survey.state.version):
        expected += _rows(base.take(_spread(untouched, samples).tolist()))
    sights += _compared(view, target, expected)
    removed = [_spread(each.newest.tombstones, samples // len(overlays) + 1) for each in overlays]
    gone = [each.newest.keys_of(numbers).cast(keys) for each, numbers in zip(overlays, removed, strict=True)]
    sights += _compared(view, target, [], pa.concat_tables([no_rows(keys), *gone]))
    return ViewSights(survey.state.version, sum(len(each.generations) for each in overlays), tuple(sights))


def _overlays(table: TableReader, survey: Survey, target: MergeTarget) -> list[_Overlay]:
    found = []
    for region in survey.regions:
        manifest = region.manifest
        merged = survey.state.require_details().merged_generation(manifest.region_id)
        waiting = sorted((each.generation, each.path) for each in manifest.flushed_generations)
        generations = tuple(
            read_keys(number, uri, open_generation(uri, table.storage_options), target, None)
            for number, path in waiting
            if number > merged
            for uri in (table.store.uri_of(generation_path(manifest.region_id, path)),)
        )
        if generations:
            found.append(_Overlay(generations, deduplicate(generations, target.key)))
    return found


def _untouched(base: lance.LanceDataset, changed: pa.Table, target: MergeTarget) -> npt.NDArray[np.int64]:
    """Return the numbers of the base rows that no generation touches."""
    search, start, untouched = KeySearch(changed, target.key), 0, [np.empty(0, dtype=np.int64)]
    with translated("read keys", base.uri, version=base.version):
        for batch in base.scanner(columns=list(target.key), scan_in_order=True).to_batches():
            touched = search.found(pa.Table.from_batches([batch]).cast(changed.schema))
            untouched.append(np.flatnonzero(~touched) + start)
            start += batch.num_rows
    return np.concatenate(untouched)


def _spread(numbers: npt.NDArray[np.int64], samples: int) -> npt.NDArray[np.int64]:
    """Choose some numbers evenly, ascending."""
    if len(numbers) <= samples:
        return numbers
    return numbers[np.unique(np.linspace(0, len(numbers) - 1, samples).astype(np.int64))]


def _compared(
    view: TableView, target: MergeTarget, expected: Sequence[_Row], absent: pa.Table | None = None
) -> Iterator[Sight]:
    """Look rows up by their keys; ``absent`` are keys that must not be found."""
    fields = pa.schema([target.schema.field(name) for name in target.key])
    keys = absent
    if keys is None:
        keys = pa.table({name: [row[name] for row in expected] for name in target.key}, schema=fields)
    if not keys.num_rows:
        return
    found = {_key(row, target): row for row in _rows(view.lookup(keys))}
    wanted: Mapping[tuple[object, ...], _Row] = {_key(row, target): row for row in expected}
    for key in map(tuple, zip(*(keys.column(name).to_pylist() for name in target.key), strict=True)):
        must, seen = wanted.get(key), found.get(key)
        columns = must if must is not None else seen or {}
        yield Sight(f"key {list(key)}", _text(seen, columns), _text(must, columns))


def _rows(rows: pa.Table) -> list[_Row]:
    """Return rows with text in place of times, of which Python does not have all."""
    columns = (times_as_text(column).to_pylist() for column in rows.columns)
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _key(row: _Row, target: MergeTarget) -> tuple[object, ...]:
    return tuple(row[name] for name in target.key)


def _text(row: _Row | None, columns: Mapping[str, object]) -> str:
    return ABSENT if row is None else repr({name: row[name] for name in columns})

"""Point lookups: newest generation first; a key that was found is not searched in older ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.keys.search import KeySearch, positions
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import ObjectNotFoundError
from memwal_core.flushed.read import OwnKeys
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.paths import region_reservation_path
from memwal_core.native.casting import cast, cast_rows, no_rows
from memwal_core.reader.analysis.trace import ROWS
from memwal_core.reader.arguments import require_columns
from memwal_core.reader.explain import explain_lookup
from memwal_core.reader.lookup.asked_keys import conformed, key_schema
from memwal_core.reader.lookup.key_guard import KeyGuard
from memwal_core.reader.lookup.key_regions import key_router
from memwal_core.reader.names import BASE, GUARD, TAKE_LAST, source_name
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan.read_plan import ReadPlan, RegionRead
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.rows.by_key import rows_with_keys
from memwal_core.reader.rows.generation_rows import FlushedRows, MemoryRows, RowRequest
from memwal_core.reader.rows.key_condition import shown_condition
from memwal_core.region.census import DamagedRegion
from memwal_core.region.spec import RegionSpec, RegionValue, decode_region_value, encode_region_value
from memwal_core.region.values import states_its_value

_ASKED_OFTEN = 4
"""After this many lookups in one flushed MemTable its keys are cached."""


@dataclass(frozen=True, slots=True)
class _Hits:
    """What a generation has of some keys: its live rows, and the keys that it writes or deletes."""

    rows: pa.Table
    keys: pa.Table


class Lookup:
    """Finds rows by primary key, with filters of flushed MemTables."""

    def __init__(self, opened: OpenedTable, guard: KeyGuard) -> None:
        self._opened = opened
        self._guard = guard
        details = opened.survey.state.details
        self._asked: dict[GenerationSource, int] = {}
        self._proven: set[GenerationSource] = set()
        self._specs = {spec.spec_id: spec for spec in (details.region_specs if details is not None else ())}

    def find(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the newest row of each key, in the order of the keys; see ``TableView.lookup``."""
        wanted = self.conform(keys)
        names = require_columns(columns, self._opened.target.schema)
        empty = self._opened.remembered(("no rows", *names), lambda: self._empty(names))
        plan = self._opened.everything
        self._rule_out(plan, wanted)
        found, pending = [], wanted
        regions = [region for region in plan.regions if region.generations]
        # For a single region the filters say as much as the spec, and sooner.
        routed = self._assigned(plan, wanted) if len(regions) > 1 else [(region, wanted) for region in regions]
        for region, assigned in routed:
            candidates = assigned if pending is wanted else _among(assigned, pending, self._opened.key)
            for source in region.generations:
                if not candidates.num_rows:
                    break
                hits = self._in_generation(source, candidates, empty)
                if hits is not None:
                    found.append(hits.rows)
                    candidates = _without(candidates, hits.keys, self._opened.key)
                    pending = _without(pending, hits.keys, self._opened.key)
        if pending.num_rows:
            with self._opened.trace.step(TAKE_LAST, BASE) as counts:
                found.append(self._in_base(pending, empty))
                counts.update({"keys": pending.num_rows, ROWS: found[-1].num_rows})
        rows = pa.concat_tables(found) if found else empty
        if rows.num_rows > 1:
            order = positions(rows, wanted, self._opened.key)
            rows = rows.take(pa.array(np.argsort(order.to_numpy(), kind="stable")))
        return rows.select(list(names)).replace_schema_metadata(self._stated(plan))

    def plan(self, keys: pa.Table) -> ReadPlan:
        """Return what a lookup reads: the regions with unmerged rows that can hold any of the keys."""
        plan = self._opened.everything
        assigned = self._assigned(plan, self.conform(keys))
        kept = tuple(region for region, candidates in assigned if candidates.num_rows)
        pruned = tuple(region.region_id for region, candidates in assigned if not candidates.num_rows)
        return replace(plan, regions=kept, pruned=pruned)

    def explain(self, keys: pa.Table) -> str:
        """Return the plan as text."""
        return explain_lookup(self.plan(keys), shown_condition(self.conform(keys)))

    def conform(self, keys: pa.Table) -> pa.Table:
        """Return the distinct keys, in key order and type.

        Raises:
            InvalidRequestError: They do not fit the table.
        """
        opened = self._opened
        return conformed(keys, opened.remembered(("keys",), lambda: key_schema(opened.target.schema, opened.key)))

    def _stated(self, plan: ReadPlan) -> dict[bytes, bytes]:
        return self._opened.remembered(("freshness",), lambda: dict(plan.freshness.metadata()))

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        """Return no rows of some columns and the key; refuse columns that cannot be read."""
        schema = self._opened.target.schema
        require_no_blobs(pa.schema([schema.field(name) for name in columns]), "read")
        needed = dict.fromkeys((*columns, *self._opened.key))
        return no_rows(pa.schema([schema.field(name) for name in needed]))

    def _assigned(self, plan: ReadPlan, keys: pa.Table) -> list[tuple[RegionRead, pa.Table]]:
        """Return each region with unmerged generations, and the keys that it may hold."""
        regions = [region for region in plan.regions if region.generations]
        used = {region.manifest.region_spec_id for region in regions} & self._specs.keys()
        routed = {spec_id: self._routed(self._specs[spec_id], keys) for spec_id in used}
        assigned = []
        for region in regions:
            values = routed.get(region.manifest.region_spec_id)
            if values is None or not states_its_value(region.manifest):
                assigned.append((region, keys))  # Created by hand, or routed by other columns than the key.
                continue
            value = decode_region_value(
                self._specs[region.manifest.region_spec_id], region.manifest.region_field_values
            )
            assigned.append((region, values.get(value, keys.slice(0, 0))))
        return assigned

    def _rule_out(self, plan: ReadPlan, keys: pa.Table) -> None:
        """Refuse keys that a damaged region may hold: it may have their newest versions."""
        for damaged in plan.damaged:
            if any(self._may_hold(damaged, spec, keys) for spec in self._specs.values()) or not self._specs:
                raise damaged.error

    def _may_hold(self, damaged: DamagedRegion, spec: RegionSpec, keys: pa.Table) -> bool:
        identity = damaged.identity
        if identity is not None and identity.region_spec_id in self._specs and identity.region_spec_id != spec.spec_id:
            return False  # Another spec decides.
        values = self._routed(spec, keys)
        if values is None:
            return True
        if identity is not None and identity.region_spec_id == spec.spec_id and states_its_value(identity):
            return decode_region_value(spec, identity.region_field_values) in values
        if damaged.reservation is None:
            return True
        paths = {region_reservation_path(spec.spec_id, encode_region_value(spec, value)) for value in values}
        return damaged.reservation in paths

    def _routed(self, spec: RegionSpec, keys: pa.Table) -> dict[RegionValue, pa.Table] | None:
        router = key_router(spec, self._opened.key, self._opened.target.field_ids)
        return None if router is None else {part.value: part.rows for part in router.route(keys)}

    def _in_generation(self, source: GenerationSource, keys: pa.Table, empty: pa.Table) -> _Hits | None:
        """Look keys up in one generation; None if it writes and deletes none of them."""
        if source.rows is not None:
            return self._taken(source, keys, lambda: self._in_rows(self._opened.rows(source), keys, empty))
        with self._opened.trace.step(GUARD, source_name(source)) as counts:
            passing = self._guard.may_contain(source, keys)
            counts.update(keys=keys.num_rows, keys_ruled_out=keys.num_rows - int(np.count_nonzero(passing)))
        if not passing.any():
            return None
        candidates = keys if passing.all() else keys.filter(pa.array(passing))
        try:
            if self._is_worth_caching(source):
                read = partial(self._in_rows, self._opened.rows(source), candidates, empty)
            else:
                read = partial(self._in_flushed, source, candidates, empty)
            return self._taken(source, candidates, read)
        except GenerationGoneError:
            raise
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def _taken(self, source: GenerationSource, keys: pa.Table, read: Callable[[], _Hits | None]) -> _Hits | None:
        with self._opened.trace.step(TAKE_LAST, source_name(source)) as counts:
            hits = read()
            counts["keys"] = keys.num_rows
            counts[ROWS] = 0 if hits is None else hits.rows.num_rows
            counts["deleted"] = 0 if hits is None else hits.keys.num_rows - hits.rows.num_rows
            return hits

    def _is_worth_caching(self, source: GenerationSource) -> bool:
        """Tell whether to cache a flushed MemTable's keys, which pays off after a few lookups."""
        self._asked[source] = self._asked.get(source, 0) + 1
        return len(self._opened.key) == 1 and self._asked[source] > _ASKED_OFTEN

    def _in_rows(self, rows: FlushedRows | MemoryRows, keys: pa.Table, empty: pa.Table) -> _Hits | None:
        key = self._opened.key
        cached = self._opened.sorted_keys(rows)
        if cached is not None:
            matching = np.sort(cached.offsets(keys.column(0).to_numpy()))
        else:
            matching = np.flatnonzero(KeySearch(keys, key).found(rows.keys))
        if not len(matching):
            return None
        last = matching[last_row_per_key(rows.keys.take(pa.array(matching)), key)]
        live = last[~rows.deleted[last]]
        batches = [cast_rows(batch, empty.schema) for batch in rows.read(live, RowRequest(tuple(empty.column_names)))]
        return _Hits(pa.Table.from_batches(batches, empty.schema), rows.keys.take(pa.array(last)))

    def _in_flushed(self, source: GenerationSource, keys: pa.Table, empty: pa.Table) -> _Hits | None:
        dataset = self._opened.dataset(source)
        assert dataset is not None  # noqa: S101 - it is flushed
        mapping, key = self._opened.mapping(source, dataset), list(self._opened.key)
        own = [mapping.sources[name] for name in key]
        lacking = [name for name in empty.column_names if name not in mapping.sources]
        present = [mapping.sources[name] for name in empty.column_names if name in mapping.sources]
        marks = [TOMBSTONE_COLUMN] if mapping.has_tombstones else []
        rows = rows_with_keys(dataset, keys, own, [*present, *marks])
        if rows.num_rows < keys.num_rows:
            self._require_own_rows(source, dataset, own)
        if not rows.num_rows:
            return None
        if rows.num_rows > 1:
            rows = rows.take(pa.array(last_row_per_key(rows, own)))
        hits = rows.select(own).rename_columns(key).cast(keys.schema)
        live = rows
        if marks:
            live = rows.filter(pa.array(~_flags(rows.column(TOMBSTONE_COLUMN))))
        columns = {
            name: mapping.reshape(name, live.column(mapping.sources[name]))
            for name in empty.column_names
            if name not in lacking
        }
        if lacking:
            owners = live.select(own).rename_columns(key).cast(keys.schema)
            backfilled = self._opened.backfilled(source, owners, lacking)
            columns |= {name: backfilled.column(name) for name in lacking}
        return _Hits(_typed(columns, empty.schema), hits)

    def _require_own_rows(self, source: GenerationSource, dataset: lance.LanceDataset, own: Sequence[str]) -> None:
        """Make sure, once, that keys which the filter let through are missing because they were never there."""
        if source in self._proven:
            return
        with translated("sample the keys of a flushed MemTable", source.path):
            counts = [fragment.count_rows() for fragment in dataset.get_fragments()]
            ends = np.cumsum(counts)  # The last row of each data file.
            numbers = [int(end) - 1 for end, count in zip(ends, counts, strict=True) if count]
            sample = dataset.take(numbers, columns=list(own)) if numbers else None
        if sample is not None:
            named = sample.rename_columns(list(self._opened.key))
            OwnKeys.of(source.path, dataset, self._opened.store).require(named)
        self._proven.add(source)

    def _in_base(self, keys: pa.Table, empty: pa.Table) -> pa.Table:
        base, cached = self._opened.base, self._opened.base_keys(keys.num_rows)
        if cached is None:
            rows = rows_with_keys(base, keys, list(self._opened.key), empty.column_names)
        else:
            offsets = cached.offsets(keys.column(0).to_numpy())
            if not len(offsets):
                return empty
            if cached.has_row_ids:
                rows = rows_of(base, offsets.view(np.uint64), tuple(empty.column_names))
            else:
                with translated("look up rows", base.uri):
                    rows = base.take(offsets.tolist(), columns=empty.column_names)
        rows = rows.select(empty.column_names)
        if rows.schema.equals(empty.schema):
            return rows
        return _typed({name: rows.column(name) for name in empty.column_names}, empty.schema)


def _flags(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.fill_null(False).to_numpy().astype(bool)
    return flags


def _among(candidates: pa.Table, pending: pa.Table, key: Sequence[str]) -> pa.Table:
    if candidates.num_rows == 0 or pending.num_rows == 0:
        return candidates.slice(0, 0)
    return candidates.filter(pa.array(KeySearch(pending, key).found(candidates)))


def _without(keys: pa.Table, settled: pa.Table, key: Sequence[str]) -> pa.Table:
    if not keys.num_rows:
        return keys
    return keys.filter(pa.array(~KeySearch(settled, key).found(keys)))


def _typed(columns: Mapping[str, pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    arrays = [columns[field.name] for field in schema]
    typed = [cast(column, field.type) for column, field in zip(arrays, schema, strict=True)]
    return pa.Table.from_arrays(typed, schema=schema)

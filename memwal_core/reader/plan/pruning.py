"""Which regions can hold rows that a filter lets through.

Transforms are evaluated by the same code that routes writes: a second formula could prune wrongly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pyarrow as pa

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.reader.plan.predicate import Bound, Box
from memwal_core.region import RegionManifest
from memwal_core.region.spec import RegionField, RegionSpec, decode_region_value, evaluate_field
from memwal_core.region.values import states_its_value

_MAX_COMBINATIONS = 4096
_ORDER_PRESERVING = frozenset({"identity", "year", "truncate"})
"""Transforms f with a <= b => f(a) <= f(b), and NULL only for NULL. Months and hours are cyclic."""


class RegionPruner:
    """Judges regions of the table's specs by the boxes of a filter.

    ``lasting`` are the columns in which all versions of a row are equal. By another one, a region with the newest
    version of a row could be left out, and the version that it supersedes would pass the filter.
    """

    def __init__(
        self, specs: Sequence[RegionSpec], lasting: pa.Schema, field_ids: Mapping[str, int], boxes: Sequence[Box]
    ) -> None:
        self._specs = {spec.spec_id: spec for spec in specs}
        self._types = {field_ids[field.name]: field.type for field in lasting}
        self._names = {number: name for name, number in field_ids.items()}
        self._boxes = {
            spec.spec_id: [[self._allowed(field, box) for field in spec.fields] for box in boxes] for spec in specs
        }

    def may_match(self, manifest: RegionManifest) -> bool:
        """Tell whether a region may hold, or supersede, a row of the filter; without a readable region value it may."""
        spec = self._specs.get(manifest.region_spec_id)
        if spec is None or not states_its_value(manifest):
            return True
        try:
            value = decode_region_value(spec, manifest.region_field_values)
        except CorruptionError:
            return True
        return any(
            all(_fits(component, bound) for component, bound in zip(value, bounds, strict=True))
            for bounds in self._boxes[spec.spec_id]
        )

    def _allowed(self, field: RegionField, box: Box) -> Bound:
        sources = [box.get(self._names.get(source, ""), Bound()) for source in field.source_ids]
        if any(source not in self._types for source in field.source_ids):
            return Bound()
        listed = [bound.values for bound in sources]
        if listed and all(values is not None for values in listed):
            return self._evaluated(field, [sorted(v or (), key=repr) for v in listed])
        if len(sources) == 1 and field.transform in _ORDER_PRESERVING:
            return self._range(field, sources[0])
        return Bound()

    def _evaluated(self, field: RegionField, listed: Sequence[Sequence[object]]) -> Bound:
        if math.prod(map(len, listed)) > _MAX_COMBINATIONS:
            return Bound()
        found = self._values(field, list(zip(*itertools.product(*listed), strict=True)))
        return Bound() if found is None else Bound(values=frozenset(found))

    def _range(self, field: RegionField, source: Bound) -> Bound:
        ends = [end for end in (source.low, source.high) if end is not None]
        found = self._values(field, [ends]) if ends else None
        if found is None:
            return Bound()
        low = found[0] if source.low is not None else None
        high = found[-1] if source.high is not None else None
        return Bound(low=low, high=high)

    def _values(self, field: RegionField, columns: Sequence[Sequence[object]]) -> list[object] | None:
        try:
            arrays = {
                source: pa.array(values, self._types[source])
                for source, values in zip(field.source_ids, columns, strict=True)
            }
            rows = len(columns[0]) if columns else 0
            values: list[object] = evaluate_field(field, arrays, rows).to_pylist()
        except (InvalidRequestError, pa.ArrowException, OverflowError, TypeError):
            return None  # What cannot be evaluated prunes nothing.
        return values


def _fits(component: object, bound: Bound) -> bool:
    if bound.values is not None:
        return component in bound.values
    if bound.low is None and bound.high is None:
        return True
    return not Bound(frozenset({component})).both(bound).is_empty

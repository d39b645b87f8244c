"""Which regions may hold some keys, told from region specs alone.

The first writer that meets a region value reserves it, and marks which region it made for it. The name of that mark
says the spec and a digest of the value, for ever; so a listing of the marks tells which regions need not be read.
Regions without a mark, for example those of other clients, are never ruled out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.format.paths import parse_reservation_spec, region_reservation_path
from memwal_core.reader.lookup.asked_keys import conformed, key_schema
from memwal_core.region.spec import RegionRouter, RegionSpec, encode_region_value


@dataclass(frozen=True, slots=True)
class KeyRegions:
    """Tells from the reservation of a region value whether the region may hold some keys.

    Attributes:
        basis: What of the table decided it; a table with another basis must be asked anew.
        reservations: Spec id -> the reservations of the values of the keys. Regions of other specs may hold any key.
    """

    basis: tuple[object, ...]
    reservations: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, state: TableState, keys: pa.Table) -> KeyRegions:
        """Return the regions of keys; ``InvalidRequestError`` if they do not fit the table."""
        key, specs = state.merge_key(), state.details.region_specs if state.details is not None else ()
        wanted = conformed(keys, key_schema(state.schema, key))
        reservations = {}
        for spec in specs:
            router = key_router(spec, key, state.field_ids)
            if router is not None:
                values = [encode_region_value(spec, value) for value in router.values(wanted)]
                reservations[spec.spec_id] = frozenset(region_reservation_path(spec.spec_id, each) for each in values)
        return cls(_basis(state), reservations)

    def fits(self, state: TableState) -> bool:
        """Tell whether it holds for a newer version of the table, too."""
        return self.basis == _basis(state)

    @property
    def expected(self) -> frozenset[str]:
        """The reservations of the values of the keys."""
        return frozenset().union(*self.reservations.values())

    def may_hold(self, reservation: str) -> bool:
        """Tell whether the region with a reservation may hold one of the keys."""
        among = self.reservations.get(parse_reservation_spec(reservation))
        return among is None or reservation in among


def key_router(spec: RegionSpec, key: Sequence[str], field_ids: Mapping[str, int]) -> RegionRouter | None:
    """Return what routes keys; None if other columns than those of the key decide a row's region.

    A column that was dropped decides for NULL from then on, but rows from before lie where its values sent them.
    """
    own = {field_ids[name] for name in key}
    if not {source for field in spec.fields for source in field.source_ids} <= own:
        return None
    return RegionRouter(spec, {name: field_ids[name] for name in key})


def _basis(state: TableState) -> tuple[object, ...]:
    specs = tuple(state.details.region_specs) if state.details is not None else ()
    key = state.merge_key()
    return specs, key, tuple((state.field_ids[name], state.schema.field(name).type) for name in key)

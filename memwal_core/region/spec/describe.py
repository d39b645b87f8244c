"""Region specs and region values in words that name columns."""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.format.region_spec.model import RegionField, RegionSpec
from memwal_core.region.spec.parameters import NUM_BUCKETS

UNSHARDED = "unsharded"
"""Transform of a spec that maps all rows to one region."""


def describe_spec(spec: RegionSpec, field_ids: Mapping[str, int]) -> str:
    """Return how a spec divides rows, for example ``bucket(id, 4)``, ``tenant`` or ``unsharded``.

    Args:
        spec: The spec.
        field_ids: Column name -> schema field id.
    """
    columns = {number: name for name, number in field_ids.items()}
    return ", ".join(describe_field(field, columns) for field in spec.fields)


def describe_field(field: RegionField, columns: Mapping[int, str]) -> str:
    """Return one component of a spec in words; ``columns`` maps schema field ids to names."""
    named = [columns.get(source, f"field {source}") for source in field.source_ids]
    if field.transform is None:
        return _bound(field.expression or "", named)
    if field.transform in {"identity", UNSHARDED}:
        return named[0] if named else UNSHARDED
    numbers = [field.parameters[name] for name in (NUM_BUCKETS, "width") if name in field.parameters]
    return f"{field.transform}({', '.join([*named, *numbers])})"


def _bound(expression: str, named: list[str]) -> str:
    for position in reversed(range(len(named))):
        expression = expression.replace(f"col{position}", named[position])
    return expression

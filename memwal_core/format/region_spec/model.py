"""Region specs as values: how rows map to regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MANUAL_SPEC_ID = 0
"""Spec id of regions that were made by hand and follow no spec."""


@dataclass(frozen=True, slots=True)
class RegionField:
    """One component of a region value.

    Attributes:
        field_id: Unique within its spec.
        source_ids: Schema field ids bound to ``col0``, ``col1``, ... in this order.
        transform: Name of a well-known transform; exclusive with ``expression``.
        expression: DataFusion SQL over ``col0``...; exclusive with ``transform``.
        result_type: Arrow type name of the value, as pylance writes it (for example ``int32``).
        parameters: Transform parameters as text (``num_buckets``, ``width``, ``hash``).
        unknown: Wire bytes of fields this version does not know, kept on rewrite.
    """

    field_id: str
    source_ids: tuple[int, ...]
    transform: str | None = None
    expression: str | None = None
    result_type: str = "int32"
    parameters: Mapping[str, str] = field(default_factory=dict)
    unknown: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """How rows of a table are divided into regions.

    Attributes:
        spec_id: Positive, unique in the index, never reused.
        fields: Their values together identify one region.
        unknown: Wire bytes of fields this version does not know, kept on rewrite.
    """

    spec_id: int
    fields: tuple[RegionField, ...]
    unknown: bytes = field(default=b"", repr=False)

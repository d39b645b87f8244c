"""Region specs as people write them: ``bucket(id, 4)``, ``tenant``, ``year(day)``, ``unsharded``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionField, RegionSpec
from memwal_core.format.region_spec.result_types import result_type_name
from memwal_core.region.spec.columns import plain_type
from memwal_core.region.spec.constructors import bucket_spec, identity_spec, multi_bucket_spec
from memwal_core.region.spec.describe import UNSHARDED
from memwal_core.region.spec.parameters import WIDTH
from memwal_core.text import whole_number

_CALL = re.compile(r"^([a-z_]+)\((.*)\)$", re.S)
_DATE_PARTS = ("year", "month", "day", "hour")
_OF_ONE = ("identity", *_DATE_PARTS)
_NUMBERED = ("bucket", "multi_bucket", "truncate")
_FORMS = ("COLUMN", "bucket(COLUMN, N)", "multi_bucket(COLUMN, ..., N)", "truncate(COLUMN, WIDTH)",
          *(f"{part}(COLUMN)" for part in _DATE_PARTS), UNSHARDED)  # fmt: skip


def parse_spec(spec_id: int, texts: Sequence[str], schema: pa.Schema, field_ids: Mapping[str, int]) -> RegionSpec:
    """Return the spec that some texts describe, one component of the region value each; not yet validated.

    Raises:
        InvalidRequestError: A text has no known form, or names a column that the table does not have.
    """
    return RegionSpec(spec_id, tuple(_field(spec_id, text.strip(), schema, field_ids) for text in texts))


def _field(spec_id: int, text: str, schema: pa.Schema, field_ids: Mapping[str, int]) -> RegionField:
    if text in field_ids:
        return _only(identity_spec(spec_id, schema.field(text), field_ids))
    if text == UNSHARDED:
        return RegionField(field_id=UNSHARDED, source_ids=(), transform=UNSHARDED)
    call = _CALL.match(text)
    name, arguments = (call[1], [each.strip() for each in call[2].split(",")]) if call else ("", [])
    number = whole_number(arguments[-1]) if name in _NUMBERED and arguments else None
    arguments = arguments if number is None else arguments[:-1]
    columns = [schema.field(each) for each in arguments if each in field_ids]
    is_known = name == "multi_bucket" or (name in {*_NUMBERED, *_OF_ONE} and len(columns) == 1)
    if not is_known or not columns or len(columns) < len(arguments) or (name in _NUMBERED) != (number is not None):
        raise _unknown(text, schema)
    return _made(spec_id, name, columns, number or 0, field_ids)


def _made(
    spec_id: int, name: str, columns: Sequence[pa.Field], number: int, field_ids: Mapping[str, int]
) -> RegionField:
    first = columns[0]
    if name == "multi_bucket":
        return _only(multi_bucket_spec(spec_id, [each.name for each in columns], field_ids, number))
    if name == "bucket":
        return _only(bucket_spec(spec_id, first.name, field_ids, number))
    if name == "identity":
        return _only(identity_spec(spec_id, first, field_ids))
    field = RegionField(f"{first.name}_{name}", (field_ids[first.name],), transform=name)
    if name in _DATE_PARTS:
        return field
    return replace(field, parameters={WIDTH: str(number)}, result_type=result_type_name(plain_type(first.type)))


def _only(spec: RegionSpec) -> RegionField:
    (field,) = spec.fields
    return field


def _unknown(text: str, schema: pa.Schema) -> InvalidRequestError:
    return InvalidRequestError(
        "this is not a way to divide the table into regions",
        remedy="use one of the known forms with columns of the table",
        text=text,
        forms=list(_FORMS),
        columns=schema.names[:20],
    )

"""Writing an empty table that MemWAL can be enabled on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from memwal_core.base_table.commit.create import check_table
from memwal_core.base_table.keys.primary_key import PRIMARY_KEY, PRIMARY_KEY_POSITION, check_primary_key, primary_key_of
from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec import RegionSpec, bucket_spec

_SPEC_ID = 1


def write_empty_table(
    uri: str, schema: pa.Schema, key: Sequence[str], buckets: int, storage_options: Mapping[str, str] | None
) -> RegionSpec:
    """Write a table without rows, and return the region spec that it is for. What does not fit is refused first.

    Raises:
        InvalidRequestError: Schema, key and buckets do not fit each other, or there is a table already;
            nothing was written.
        UnavailableError: Storage failed.
    """
    _check_key(schema, key)
    keyed = pa.schema([_with_key(field, key) for field in schema], metadata=schema.metadata)
    with translated("create a table", uri):
        fields = LanceSchema.from_pyarrow(keyed).fields()
    found = primary_key_of(fields)
    if found.columns != tuple(key):
        raise InvalidRequestError(
            "the schema marks other columns as primary key than the key names",
            remedy="remove the marks from the schema, or name the same columns",
            key=list(key),
            marked=list(found.columns),
        )
    field_ids = {field.name(): field.id() for field in fields}
    spec = bucket_spec(_SPEC_ID, key[0], field_ids, num_buckets=buckets)
    check_table(keyed, field_ids, check_primary_key(keyed, found), [spec])
    options = dict(storage_options or {}) or None
    with translated("create a table", uri):
        lance.write_dataset(keyed.empty_table(), uri, mode="create", storage_options=options)
    return spec


def _check_key(schema: pa.Schema, key: Sequence[str]) -> None:
    missing = sorted(set(key) - set(schema.names))
    if missing or not key:
        raise InvalidRequestError(
            "the key names columns that the schema does not have" if missing else "the key names no column",
            remedy="name columns of the schema",
            key=list(key),
            columns=schema.names,
        )
    if len(set(key)) < len(key):
        raise InvalidRequestError("the key names a column twice", remedy="name each column once", key=list(key))


def _with_key(field: pa.Field, key: Sequence[str]) -> pa.Field:
    if field.name not in key:
        return field
    mark = {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(key.index(field.name) + 1)}
    return field.with_nullable(False).with_metadata({**(field.metadata or {}), **mark})

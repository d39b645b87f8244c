"""Writing an empty table that MemWAL can be enabled on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from memwal_core.base_table.column_names import require_usable_names
from memwal_core.base_table.commit.create import check_table
from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit.version_catalog import TABLE_ID, CommitRule, VersionCatalog
from memwal_core.base_table.keys.primary_key import PRIMARY_KEY, PRIMARY_KEY_POSITION, check_primary_key, primary_key_of
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated, without_doubt
from memwal_core.errors import InvalidRequestError, MemwalError
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, version_of_manifest
from memwal_core.ids import IdSource
from memwal_core.region.spec import RegionSpec, bucket_spec
from memwal_core.region.spec.text import parse_spec
from memwal_core.rng import system_rng
from memwal_core.storage import ObjectStore

_SPEC_ID = 1
_LEVELS = 63
"""Of a column's type, itself included, that Arrow hands over between Lance and Python; a deeper one it writes only."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that does not exist yet: its columns with the marks of the key, their ids, and its region spec."""

    schema: pa.Schema
    field_ids: Mapping[str, int]
    spec: RegionSpec


def write_empty_table(
    store: ObjectStore, schema: pa.Schema, key: Sequence[str], regions: Sequence[str] | int, *, dry_run: bool = False
) -> NewTable:
    """Write a table without rows. What does not fit is refused first; a dry run only checks.

    One that an interrupted call left, before MemWAL was enabled on it, is taken as it is.

    ``store`` is rooted at the table that will be; ``regions`` are the components of a spec as ``parse_spec`` reads
    them, or a number of buckets of the first key column.

    Raises:
        InvalidRequestError: Schema, key and buckets do not fit each other, or there is a table already;
            nothing was written.
    """
    _check_key(schema, key)
    _check_nesting(schema)
    require_usable_names(schema)
    keyed = pa.schema([_with_key(field, key) for field in schema], metadata=schema.metadata)
    with translated("create a table", store.uri):
        converted = LanceSchema.from_pyarrow(keyed)
        fields, as_lance_gives_it = converted.fields(), converted.to_pyarrow()
    found = primary_key_of(fields)
    if found.columns != tuple(key):
        raise InvalidRequestError(
            "the schema marks other columns as primary key than the key names",
            remedy="remove the marks from the schema, or name the same columns",
            key=list(key),
            marked=list(found.columns),
        )
    field_ids = {field.name(): field.id() for field in fields}
    spec = new_spec(_SPEC_ID, regions, keyed, field_ids, key)
    check_table(keyed, field_ids, check_primary_key(keyed, found), [spec])
    if _has_version(store):
        if not _is_unfinished(store, as_lance_gives_it):
            raise _taken(store.uri)
    elif not dry_run:
        _publish(store, keyed)
    return NewTable(keyed, field_ids, spec)


def new_spec(
    spec_id: int,
    regions: Sequence[str] | int,
    schema: pa.Schema,
    field_ids: Mapping[str, int],
    key: Sequence[str],
) -> RegionSpec:
    """Return a spec of the given components, or of a number of buckets of the first key column; not yet validated.

    Raises:
        InvalidRequestError: A component is not understood, or names an unknown column.
    """
    if isinstance(regions, int):
        return bucket_spec(spec_id, key[0], field_ids, num_buckets=regions)
    return parse_spec(spec_id, regions, schema, field_ids)


def _publish(store: ObjectStore, schema: pa.Schema) -> None:
    """Make version 1 through the version catalog; refuse an address that has a version already."""
    catalog = VersionCatalog(
        store, DurableFiles(store), _first_version_of(store.uri), identity=IdSource(system_rng()).commit_id().hex()
    )
    try:
        with translated("create a table", store.uri):
            lance.LanceDataset.commit(
                store.uri,
                lance.LanceOperation.Overwrite(schema, []),
                storage_options=dict(store.storage_options),
                namespace_client=catalog.client,
                table_id=TABLE_ID,
                namespace_client_managed_versioning=True,
            )
    except MemwalError as error:
        if catalog.error is not None:  # What Lance makes of it says nothing more.
            raise catalog.error from None
        raise catalog.unanswered or without_doubt(error, asked_version=0) from error
    finally:
        catalog.remove_staged()
    if catalog.error is not None:
        raise catalog.error


def _has_version(store: ObjectStore) -> bool:
    names = (found.path.rpartition("/")[2] for found in store.list_objects(TABLE_VERSIONS_DIRECTORY))
    return any(version_of_manifest(name) is not None for name in names)


def _is_unfinished(store: ObjectStore, schema: pa.Schema) -> bool:
    """Tell whether the table is what ``_publish`` makes, and nothing was done to it since."""
    state = TableReader(store).state()
    is_new = state.version == 1 and not state.num_rows and state.entry is None
    return is_new and state.schema.equals(schema, check_metadata=True)


def _first_version_of(uri: str) -> CommitRule:
    def rule(version: int, staged: bytes) -> bytes:
        if version != 1:
            raise _taken(uri)
        return staged

    return rule


def _taken(uri: str) -> InvalidRequestError:
    return InvalidRequestError(
        "there is a table at this address already",
        remedy="open it, or choose another address; if it has no MemWAL yet, `memwal enable` adds it",
        table=uri,
    )


def _check_key(schema: pa.Schema, key: Sequence[str]) -> None:
    missing = sorted(set(key) - set(schema.names))
    if missing or not key:
        raise InvalidRequestError(
            "the key names columns that the schema does not have" if missing else "the key names no column",
            remedy="name columns of the schema (`memwal create --key COLUMN`)",
            key=list(key),
            columns=schema.names,
        )
    if len(set(key)) < len(key):
        raise InvalidRequestError("the key names a column twice", remedy="name each column once", key=list(key))


def _check_nesting(schema: pa.Schema) -> None:
    deep = [field.name for field in schema if _is_deeper(field.type, _LEVELS)]
    if deep:
        raise InvalidRequestError(
            "columns are nested deeper than Lance can read",
            remedy="flatten them, or keep them as JSON text",
            columns=deep,
            max_levels=_LEVELS,
        )


def _is_deeper(kind: pa.DataType, levels: int) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_deeper(kind.storage_type, levels)
    return not levels or any(_is_deeper(kind.field(number).type, levels - 1) for number in range(kind.num_fields))


def _with_key(field: pa.Field, key: Sequence[str]) -> pa.Field:
    if field.name not in key:
        return field
    mark = {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(key.index(field.name) + 1)}
    return field.with_nullable(False).with_metadata({**(field.metadata or {}), **mark})

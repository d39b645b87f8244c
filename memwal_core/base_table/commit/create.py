"""Creating the MemWAL index of a table: its preconditions, and the operation that adds it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

import lance
import pyarrow as pa
from lance.bitmap import Bitmap
from lance.dataset import Index

from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.column_names import require_usable_names
from memwal_core.base_table.indexes.inventory import IndexFacts, check_maintained
from memwal_core.base_table.keys.primary_key import PrimaryKey
from memwal_core.base_table.state import TableState
from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MEM_WAL_DETAILS_TYPE_URL, MEM_WAL_INDEX_NAME, MemWalIndexDetails
from memwal_core.format.memwal_index.codec import encode_details
from memwal_core.format.memwal_index.rules import check_any_commit
from memwal_core.region.spec import RegionSpec, validate_new_spec

_log = logging.getLogger(__name__)


def new_details(
    state: TableState,
    specs: Sequence[RegionSpec],
    maintained: Sequence[str],
    indexes: Sequence[IndexFacts],
    *,
    beside_regions: bool = False,
) -> MemWalIndexDetails:
    """Return the details of a new MemWAL index after checking that the table can have it.

    ``InvalidRequestError``: it has an index already, no usable primary key or a blob column, a spec
    breaks a rule, or a maintained index cannot be listed.
    """
    require_not_enabled(state)
    key = state.require_primary_key()
    check_table(state.schema, state.field_ids, None if beside_regions else key, specs)
    check_maintained(maintained, indexes, key)
    details = MemWalIndexDetails(region_specs=tuple(specs), maintained_indexes=tuple(maintained))
    check_any_commit(MemWalIndexDetails(), details)
    return details


def require_not_enabled(state: TableState) -> None:
    """Refuse a table that has a MemWAL index (``InvalidRequestError``)."""
    if state.entry is not None:
        raise InvalidRequestError(
            "the table has a MemWAL index already",
            remedy="use the index that it has; `memwal add-spec` divides the table anew",
            version=state.version,
            legacy=state.is_legacy,
        )


def check_table(
    schema: pa.Schema, field_ids: Mapping[str, int], key: PrimaryKey | None, specs: Sequence[RegionSpec]
) -> None:
    """Refuse a schema that MemTables cannot hold, and specs that break a rule (``InvalidRequestError``).

    ``key`` has to determine the region of a row; None if the regions exist.
    """
    require_no_blobs(schema, "write")
    require_usable_names(schema)
    fields = {field_id: schema.field(name) for name, field_id in field_ids.items()}
    for position, spec in enumerate(specs):
        for warning in validate_new_spec(spec, specs[:position], fields, None if key is None else key.field_ids):
            _log.warning("%s [field_id=%s, code=%s]", warning.message, warning.field_id, warning.code)


def creation_operation(
    state: TableState, details: MemWalIndexDetails, index_id: uuid.UUID, created_at: datetime
) -> lance.LanceOperation.CreateIndex:
    """Return the operation that adds the index.

    It equals what pylance's own ``initialize_mem_wal`` commits, so that pylance reports a conflict when
    another process initialises the table from an older version.
    """
    index = Index(
        uuid=str(index_id),
        name=MEM_WAL_INDEX_NAME,
        fields=[],
        dataset_version=state.version,
        fragment_ids=Bitmap(),
        index_version=0,
        created_at=created_at,
        index_details=(MEM_WAL_DETAILS_TYPE_URL, encode_details(details)),
    )
    return lance.LanceOperation.CreateIndex(new_indices=[index], removed_indices=[])

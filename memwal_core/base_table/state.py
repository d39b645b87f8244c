"""One version of a base table as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

import lance
import pyarrow as pa

from memwal_core.base_table.keys.primary_key import PrimaryKey, check_primary_key
from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import decode_details
from memwal_core.format.table_manifest import MemWalEntry


@dataclass(frozen=True, slots=True)
class TableState:
    """What one version of a base table is.

    Attributes:
        field_ids: Top-level column -> Lance field id.
        inner_ids: Top-level column -> the ids of all fields inside of it, depth first; only columns that have some.
        primary_key: The key the schema defines, usable or not; without columns if there is none.
        details: The MemWAL index; None if the version has none or only a legacy one.
        entry: The MemWAL index as the manifest lists it; None if the version has none.
        data_storage_version: Version of Lance's file format, for example ``2.2``.
        num_rows: Live rows.
        timestamp: When the version was made, timezone UTC.
        is_clone: Whether it is a shallow clone of another table.
        opened: The version in pylance's hands, which whoever reads the same version shares while this value lives.
    """

    version: int
    schema: pa.Schema
    field_ids: Mapping[str, int]
    primary_key: PrimaryKey
    details: MemWalIndexDetails | None
    entry: MemWalEntry | None = field(repr=False)
    data_storage_version: str
    num_rows: int
    timestamp: datetime
    is_clone: bool = False
    inner_ids: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    opened: lance.LanceDataset | None = field(default=None, repr=False, compare=False)

    @property
    def column_ids(self) -> dict[str, tuple[int, ...]]:
        """Top-level column -> its field id and those of all fields inside, depth first."""
        return {name: (number, *self.inner_ids.get(name, ())) for name, number in self.field_ids.items()}

    @property
    def is_legacy(self) -> bool:
        """Whether the index has the layout of early MemWAL releases, which jobs refuse to touch."""
        return self.entry is not None and self.details is None

    def require_primary_key(self) -> PrimaryKey:
        """Return the primary key; refuse a table without one that MemWAL can use."""
        return check_primary_key(self.schema, self.primary_key)

    def merge_key(self) -> tuple[str, ...]:
        """Return the columns by which a merge replaces rows; none if the table has no primary key (append-only).

        ``InvalidRequestError``: there is a key, but MemWAL cannot use it.
        """
        return self.require_primary_key().columns if self.primary_key.columns else ()

    def require_details(self) -> MemWalIndexDetails:
        """Return the index details.

        ``LegacyIndexError``: the index has the layout of early releases; leave the table alone.
        ``InvalidRequestError``: there is no MemWAL index; ``BaseTable.require_mem_wal`` tells whether the
        table never had one.
        """
        if self.details is not None:
            return self.details
        if self.entry is not None:
            return decode_details(self.entry.payload)
        raise InvalidRequestError(
            "this version of the table has no MemWAL index",
            remedy="run `memwal enable` (docs/writing.md)",
            table=None if self.opened is None else self.opened.uri,
            version=self.version,
        )

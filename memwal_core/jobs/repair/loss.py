"""Which keys are gone with a generation that is given up, as far as anything still tells."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from memwal_core.base_table import decoding, open_file
from memwal_core.deduplicate import last_row_per_key, rows_without_key
from memwal_core.errors import CorruptionError
from memwal_core.flushed.write.key_index import KEY_INDEX_DIRECTORY, KEY_INDEX_PAGES
from memwal_core.format.paths import generation_path
from memwal_core.jobs.repair.plan import DamagedGeneration
from memwal_core.jobs.repair.sources import RowSources
from memwal_core.storage.protocol import ObjectStore
from memwal_core.writer.layout import TableLayout

_VALUES = "values"


@dataclass(frozen=True, slots=True)
class Loss:
    """What is known of the rows that are gone.

    Attributes:
        keys: The keys of which no row of the generation is left; None if nothing tells them.
        known_from: What tells, or why nothing does.
        rows: How many rows are gone, older duplicates of a key included; None if unknown.
    """

    keys: pa.Table | None = field(repr=False)
    known_from: str
    rows: int | None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values, with a few of the keys."""
        return {
            "rows_gone": self.rows,
            "keys_gone": self.keys.num_rows if self.keys is not None else None,
            "keys_known_from": self.known_from,
            "sample": self.keys.slice(0, 20).to_pylist() if self.keys is not None else [],
        }


def loss_of(store: ObjectStore, damaged: DamagedGeneration, sources: RowSources, layout: TableLayout) -> Loss:
    """Compare the key index of the damaged flushed MemTable with what is left of its rows.

    A key with a row left may have lost a later one; which keys these are, nothing tells.
    """
    rows = damaged.rows - damaged.rows_left if damaged.rows is not None else None
    if damaged.path is None:
        return Loss(None, "no directory is recorded, so there is no key index", rows)
    if not layout.key:
        return Loss(None, "the table has no primary key", rows)
    if len(layout.key) > 1:
        return Loss(None, "the key index of a key with several columns cannot be read back", rows)
    keys = _indexed_keys(store, damaged, layout)
    if keys is None:
        return Loss(None, "its key index is gone or damaged, too", rows)
    if sources.rows is not None:
        keys = rows_without_key(keys, sources.rows.select(list(layout.key)), layout.key)
    return Loss(keys, "its key index", rows)


def _indexed_keys(store: ObjectStore, damaged: DamagedGeneration, layout: TableLayout) -> pa.Table | None:
    directory = generation_path(damaged.region_id, str(damaged.path))
    path = f"{directory}/{KEY_INDEX_DIRECTORY}/{KEY_INDEX_PAGES}"
    if store.head(path) is None:
        return None
    uri, [name] = store.uri_of(path), layout.key
    try:
        reader = open_file(uri, store.storage_options)
        with decoding(uri):
            values = reader.read_all().to_table().column(_VALUES)
            keys = pa.table({name: values.cast(layout.memtable_schema.field(name).type)})
    except CorruptionError:
        return None
    return keys.take(pa.array(last_row_per_key(keys, [name])))

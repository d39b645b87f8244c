"""Tables for reader tests: the reference set-up of the read plans, and whole tables as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.ids import RegionId
from memwal_core.reader.merged import MergedReader
from memwal_core.region.spec import RegionRouter
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import make_people_table, people


@dataclass(frozen=True, slots=True)
class Reference:
    """Base table, region A with generations 1 (flushed) and 2, region B with 1, 2 (flushed) and 3.

    Attributes:
        table: With the writers of both regions.
        writer: Owns both regions.
        names: ``region_A`` and ``region_B``.
        keys_a: Keys that belong to region A.
        keys_b: Keys that belong to region B.
    """

    table: Table
    writer: TableWriter
    names: Mapping[RegionId, str]
    keys_a: tuple[int, ...]
    keys_b: tuple[int, ...]


def make_reference(uri: str) -> Reference:
    """Create the reference set-up; region A has the smaller id, so that plans list it first.

    Args:
        uri: Where; nothing may be there.
    """
    base = make_people_table(uri, rows=people(*range(40)), buckets=2)
    state = base.state()
    router = RegionRouter(base.require_mem_wal(state).region_specs[0], state.field_ids)
    table = Table.open(uri)
    writer = table.writer()
    writer.put(people(*range(100, 120), name="first"))
    parts = router.route(people(*range(40)))
    owners = {writer.writers[part.value].region_id: part.rows.column("id").to_pylist() for part in parts}
    (id_a, keys_a), (id_b, keys_b) = sorted(owners.items())
    writer.flush()
    writer.put(people(*keys_b[:2], name="second"))
    writer.flush()
    writer.put(people(keys_a[0], keys_b[0], name="unflushed"))
    names = {id_a: "region_A", id_b: "region_B"}
    return Reference(table, writer, names, tuple(keys_a), tuple(keys_b))


class DuplicateKeyError(AssertionError):
    """A key occurs twice where it may occur once."""


def read_with(uri: str, writers: Iterable[RegionWriter]) -> MergedReader:
    """Return a reader that also reads the MemTables of some region writers, whoever opened them."""
    held = list(writers)
    return MergedReader(TableReader.open(uri), writers=lambda: held)


def as_model(rows: pa.Table) -> dict[int, str]:
    """Return people rows as key -> name.

    Raises:
        DuplicateKeyError: A key occurs twice.
    """
    model = dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))
    if len(model) != rows.num_rows:
        raise DuplicateKeyError(f"{rows.num_rows - len(model)} keys occur twice")
    return model


def keys_of(*ids: int) -> pa.Table:
    """Return keys of people."""
    return pa.table({"id": pa.array(ids, pa.int64())})

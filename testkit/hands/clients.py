"""Ways to make, enable and write a table: this project's writer, pylance's and LanceDB's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
from lancedb import LsmWriteSpec

from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionRouter, RegionValue, bucket_spec
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.hands.model import Writes
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people
from testkit.tables.readable import keys_of

KEYS = 16
BUCKETS = 2


@dataclass(frozen=True)
class Written:
    """A write that was acknowledged.

    Attributes:
        region_id: Where.
        writes: What.
        is_flushed: Whether the writer flushed everything that waits in the region.
    """

    region_id: RegionId
    writes: Writes
    is_flushed: bool


@dataclass(frozen=True)
class Client:
    """A way to work with a table.

    Attributes:
        name: For the history.
        make: Makes an empty table with MemWAL.
        enable: Enables MemWAL on a table that has lost it.
        write: Writes to one region, and tells each acknowledgement.
        is_ours: Whether refusals have to be errors of this project.
    """

    name: str
    make: Callable[[str], None]
    enable: Callable[[str], None]
    write: Callable[[Table, Writes, bool, Callable[[Written], None]], None]
    is_ours: bool = False

    def __str__(self) -> str:
        return self.name


def group_of(key: int) -> int:
    """Return which keys are written together; each group lies in one region, whichever client writes."""
    return _GROUPS[key]


def _buckets() -> Mapping[int, RegionValue]:
    router = RegionRouter(bucket_spec(1, "id", {"id": 0}, BUCKETS), {"id": 0})
    return {key: part.value for part in router.route(people(*range(KEYS))) for key in part.rows["id"].to_pylist()}


_VALUES = _buckets()
_GROUPS = {key: sorted(set(_VALUES.values()), key=repr).index(value) for key, value in _VALUES.items()}


def _make_ours(uri: str) -> None:
    make_people_table(uri, buckets=BUCKETS)


def _enable_ours(uri: str) -> None:
    table = Table.open(uri)
    table.enable([bucket_spec(1, "id", table.base.state().field_ids, BUCKETS)])


def _write_ours(
    table: Table,
    writes: Writes,
    flush: bool,
    told: Callable[[Written], None],
) -> None:
    with table.writer(takeover="fence") as writer:
        puts, deletes = _parts(writes)
        if puts:
            writer.put(_rows(puts))
            told(Written(_region(writer, next(iter(puts))), dict(puts), is_flushed=False))
        if deletes:
            writer.delete(keys_of(*deletes))
            told(Written(_region(writer, deletes[0]), dict.fromkeys(deletes), is_flushed=False))
        if flush:
            writer.flush()
            told(Written(_region(writer, next(iter(writes))), {}, is_flushed=True))


def _region(writer: TableWriter, key: int) -> RegionId:
    return writer.writers[_VALUES[key]].region_id


def _parts(writes: Writes) -> tuple[dict[int, str], list[int]]:
    puts = {key: value for key, value in writes.items() if value is not None}
    return puts, [key for key, value in writes.items() if value is None]


def _rows(puts: Mapping[int, str]) -> pa.Table:
    rows = people(*puts)
    return rows.set_column(1, PEOPLE.field("name"), [list(puts.values())])


def _make_pylance(uri: str) -> None:
    lance.write_dataset(PEOPLE.empty_table(), uri)
    _enable_pylance(uri)


def _enable_pylance(uri: str) -> None:
    lance.dataset(uri).initialize_mem_wal(unsharded=True)


def _write_pylance(
    table: Table,
    writes: Writes,
    _flush: bool,
    told: Callable[[Written], None],
) -> None:
    puts, deletes = _parts(writes)
    region_id = native_region_id(1 + group_of(next(iter(writes))))
    calls: list[Put | Delete] = [Put(_rows(puts))] if puts else []
    calls += [Delete(keys_of(*deletes))] if deletes else []
    write_native_generations(table.uri, region_id, [calls])
    told(Written(region_id, writes, is_flushed=True))


def lancedb_table(uri: str) -> lancedb.table.Table:
    """Open the table as LanceDB's users do."""
    path = Path(uri)
    return lancedb.connect(str(path.parent)).open_table(path.stem)


def _make_lancedb(uri: str) -> None:
    path = Path(uri)
    table = lancedb.connect(str(path.parent)).create_table(path.stem, schema=PEOPLE)
    table.set_lsm_write_spec(LsmWriteSpec.unsharded())  # type: ignore[attr-defined]


def _enable_lancedb(uri: str) -> None:
    lancedb_table(uri).set_lsm_write_spec(LsmWriteSpec.unsharded())  # type: ignore[attr-defined]


def _write_lancedb(
    table: Table,
    writes: Writes,
    _flush: bool,
    told: Callable[[Written], None],
) -> None:
    puts, _ = _parts(writes)
    if not puts:
        return
    opened = lancedb_table(table.uri)
    opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(_rows(puts))
    opened.close_lsm_writers()  # type: ignore[attr-defined]
    (region_id,) = table.opened.manifests.region_ids()
    told(Written(region_id, puts, is_flushed=True))


OURS = Client("memwal", _make_ours, _enable_ours, _write_ours, is_ours=True)
PYLANCE = Client("pylance", _make_pylance, _enable_pylance, _write_pylance)
LANCEDB = Client("lancedb", _make_lancedb, _enable_lancedb, _write_lancedb)
CLIENTS = (OURS, PYLANCE, LANCEDB)

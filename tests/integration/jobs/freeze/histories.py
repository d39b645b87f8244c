"""Tables of ours, of pylance and of LanceDB, and what people's hands do to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from memwal_core.ids import RegionId
from memwal_core.table import Table
from testkit.hands import clients
from testkit.hands.clients import lancedb_table
from testkit.tables.garbage import write_generations
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

Rows = Mapping[int, str]


@dataclass(frozen=True)
class Client:
    """A way to write a table: one flushed generation per call of ``write``."""

    name: str
    make: Callable[[str], None]
    write: Callable[[str, Sequence[int], str], None]
    enable: Callable[[str], None]
    freezes_as: str = "index-made-anew"
    """The cause after it enabled MemWAL on a table that had lost its index; ours freezes the table before."""

    def __str__(self) -> str:
        return self.name


def rows_of(uri: str) -> Rows:
    """Return what the base table holds: id -> name."""
    found = lance.dataset(uri).to_table(columns=["id", "name"]).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key twice"
    return {row["id"]: row["name"] for row in found}


def region_of(uri: str) -> RegionId:
    """Return the only region."""
    (region_id,) = Table.open(uri).opened.manifests.region_ids()
    return region_id


def region_path(uri: str) -> Path:
    return Path(uri) / "_mem_wal" / str(region_of(uri))


def overwrite(uri: str, rows: pa.Table) -> None:
    """Replace the whole content, as anybody's pipeline does."""
    lance.write_dataset(rows, uri, mode="overwrite")


def _make_ours(uri: str) -> None:
    make_people_table(uri, buckets=1)


def _write_ours(uri: str, ids: Sequence[int], name: str) -> None:
    write_generations(Table.open(uri).base, ids, name=name)


def _enable_ours(uri: str) -> None:
    Table.open(uri).enable()


def _write_pylance(uri: str, ids: Sequence[int], name: str) -> None:
    write_native_generations(uri, native_region_id(1), [[Put(people(*ids, name=name))]])


def _write_lancedb(uri: str, ids: Sequence[int], name: str) -> None:
    table = lancedb_table(uri)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(people(*ids, name=name))
    table.close_lsm_writers()


OURS = Client("ours", _make_ours, _write_ours, _enable_ours, "index-gone")
PYLANCE = Client("pylance", clients.PYLANCE.make, _write_pylance, clients.PYLANCE.enable)
LANCEDB = Client("lancedb", clients.LANCEDB.make, _write_lancedb, clients.LANCEDB.enable)
CLIENTS = (OURS, PYLANCE, LANCEDB)

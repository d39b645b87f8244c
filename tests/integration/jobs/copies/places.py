"""Stores in which tables are copied: a disk with links, one without, and S3."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import lance

from memwal_core.clock import Clock
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.storage import ObjectStore, open_store
from memwal_core.table import Table
from testkit.faults.faulty_store import FaultyStore
from testkit.s3_server import S3Server
from testkit.tables.native_regions import native_scan
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import writer_settings

SETTINGS = writer_settings(pack_below_bytes=0)


@dataclass(frozen=True)
class Place:
    """A store with room for tables."""

    root: str
    options: Mapping[str, str]
    has_links: bool = True

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}"

    def open(self, name: str, clock: Clock | None = None) -> Table:
        base = OpenTable.at(self.uri(name), storage_options=self.options or None, settings=SETTINGS, clock=clock).base
        if self.has_links:
            return Table(OpenTable.of(base))
        store = FaultyStore(base.store)
        store.has_links = False
        return Table(OpenTable.of(reopened(base, store, SETTINGS)))

    def store(self) -> ObjectStore:
        return open_store(self.root, storage_options=self.options)

    def copy(self, name: str, other: str) -> None:
        """Copy as people do."""
        if not self.options:
            shutil.copytree(self.uri(name), self.uri(other))
            return
        store = self.store()
        for info in list(store.list_objects(name)):
            store.put(f"{other}{info.path.removeprefix(name)}", store.get(info.path))

    def remove(self, name: str) -> None:
        self.store().delete_directory(name)


def make_place(kind: str, tmp_path: Path, s3: S3Server | None) -> Place:
    """Return an empty place: ``links``, ``no links`` or ``s3``."""
    if kind == "s3":
        assert s3 is not None
        return Place(s3.uri(f"bucket/{uuid.uuid4()}"), dict(s3.storage_options))
    (tmp_path / kind).mkdir(exist_ok=True)
    return Place(str(tmp_path / kind), {}, has_links=kind == "links")


def make_table(place: Place, name: str = "people.lance") -> Table:
    """Make a table with base rows, merged rows, flushed MemTables with several WAL entries, tombstones, and a WAL."""
    make_people_table(
        place.uri(name), rows=people(1, 2, 3, name="base"), buckets=2, storage_options=place.options, settings=SETTINGS
    )
    table = place.open(name)
    with table.writer() as writer:
        writer.put(people(2, 4, name="merged"))
        writer.flush()
    table.run(MergeRequest())
    with table.writer(takeover="fence") as writer:
        writer.put(people(*range(5, 25), name="flushed"))
        writer.delete(people(1).select(["id"]))
        writer.put(people(*range(10, 20), name="again"))
        writer.flush()
        writer.put(people(5, 30, name="in the WAL"))
        writer.delete(people(6).select(["id"]))
    return place.open(name)


FLUSHED = (
    {2: "merged", 3: "base", 4: "merged"}
    | dict.fromkeys(range(5, 25), "flushed")
    | dict.fromkeys(range(10, 20), "again")
)
"""What ``make_table`` makes, as readers show it that read no WAL: id -> name."""

RIGHT = {key: name for key, name in FLUSHED.items() if key != 6} | {5: "in the WAL", 30: "in the WAL"}
"""The same with the WAL."""


def seen(table: Table) -> dict[int, str]:
    """Return what our reader shows, the WAL included."""
    rows = Table.open(table.uri, storage_options=table.base.storage_options, consistency="durable").scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def seen_by_pylance(table: Table) -> dict[int, str]:
    """Return what pylance's own LSM reader shows of base table and flushed MemTables; it reads no WAL."""
    manifests = table.opened.manifests.load_many(table.opened.manifests.region_ids())
    rows = native_scan(table.uri, manifests, ["id", "name"], "id", table.base.storage_options)
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def in_base(table: Table) -> dict[int, str]:
    """Return the rows of the base table."""
    rows = lance.dataset(table.uri, storage_options=dict(table.base.storage_options) or None).to_table()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def flushed_and_merged(table: Table) -> dict[int, str]:
    """Open writers of all regions, flush, merge, and return the base table."""
    with table.writer(takeover="fence") as writer:
        writer.put(people(2, 1000, name="merged"))
        writer.put(people(*range(2000, 2010)))
        writer.flush()
    table.run(MergeRequest())
    found = in_base(table)
    return {key: name for key, name in found.items() if key < 1000}

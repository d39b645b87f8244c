"""Tables with two regions that are rebuilt from a template before each blow, at the same address."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa

from memwal_core.format.paths import (
    ARROW_WAL_SUFFIX,
    LANCE_WAL_SUFFIX,
    generation_path,
    manifest_path,
    quarantine_path,
    region_directory,
    version_hint_path,
    wal_entry_path,
)
from memwal_core.ids import RegionId
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan.survey import Surveyor
from memwal_core.region import RegionManifest
from memwal_core.region.spec import RegionRouter
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people
from testkit.tables.readable import as_model, keys_of

_NO_SNAPSHOT_INTERVAL = {"index": {"snapshot_interval_s": 0}}


@dataclass(frozen=True, slots=True)
class Victim:
    """A table, its rows, and which of its two regions is about to be damaged.

    Attributes:
        uri: The table.
        hurt: The region to damage.
        healthy: The other one.
        suffix: Of the WAL entries.
        flushed: Key -> name, as far as rows are flushed.
        durable: Key -> name of everything that was acknowledged.
        hurt_keys: Keys that the region to damage writes.
        healthy_keys: Keys that the other one writes.
    """

    uri: str
    hurt: RegionManifest
    healthy: RegionManifest
    suffix: str
    flushed: Mapping[int, str]
    durable: Mapping[int, str]
    hurt_keys: frozenset[int]
    healthy_keys: frozenset[int]

    def restore(self) -> None:
        """Put the table back as it was made."""
        shutil.rmtree(self.uri, ignore_errors=True)
        shutil.copytree(f"{self.uri}.template", self.uri)

    def file(self, kind: str, manifest: RegionManifest | None = None) -> Path | None:
        """Return a file of a region, by default of the one to damage; None if regions of this table have none."""
        region = manifest if manifest is not None else self.hurt
        found = FILES[kind](self, region)
        path = Path(self.uri) / found if found is not None else None
        return path if path is not None and path.exists() else None


def _generation(region: RegionManifest) -> str:
    return generation_path(region.region_id, region.flushed_generations[0].path)


def _first(victim: Victim, directory: str, pattern: str) -> str | None:
    found = sorted((Path(victim.uri) / directory).glob(pattern))
    return str(found[0].relative_to(victim.uri)) if found else None


def _data_file(victim: Victim, region: RegionManifest) -> str | None:
    own = _first(victim, f"{_generation(region)}/data", "*.lance")
    return own or wal_entry_path(region.region_id, 1, LANCE_WAL_SUFFIX)


FILES: Mapping[str, Callable[[Victim, RegionManifest], str | None]] = {
    "region manifest": lambda _, region: manifest_path(region.region_id, region.version),
    "older region manifest": lambda _, region: manifest_path(region.region_id, region.version - 1),
    "version hint": lambda _, region: version_hint_path(f"{region_directory(region.region_id)}/manifest"),
    "flushed WAL entry": lambda v, region: wal_entry_path(region.region_id, region.replay_after_wal_id, v.suffix),
    "WAL entry": lambda v, region: wal_entry_path(region.region_id, region.replay_after_wal_id + 1, v.suffix),
    "manifest": lambda v, region: _first(v, f"{_generation(region)}/_versions", "*.manifest"),
    "data file": _data_file,
    "deletion file": lambda v, region: _first(v, f"{_generation(region)}/_deletions", "*"),
    "key index": lambda v, region: _first(v, f"{_generation(region)}/_pk_index", "page_data.lance"),
    "key filter": lambda v, region: _first(v, _generation(region), "memwal_key_filter.bin"),
    "bloom filter": lambda v, region: _first(v, _generation(region), "bloom_filter.bin"),
    "quarantine record": lambda _, region: quarantine_path(region.region_id, 1),
    "flushed MemTable": lambda _, region: _generation(region),
    "region": lambda _, region: region_directory(region.region_id),
}
"""Kind of file -> where it is, relative to the table. The last two are directories."""

DIRECTORIES = frozenset({"flushed MemTable", "region"})


def _written_by_us(uri: str, codec: str) -> None:
    settings = Settings.model_validate(
        {"writer": {"new_region_codec": codec, "pack_below_bytes": 0}, **_NO_SNAPSHOT_INTERVAL}
    )
    make_people_table(uri, rows=people(*range(5)), buckets=2, settings=settings)
    table = Table.open(uri, settings=settings)
    with table.writer() as writer:
        writer.put(people(*range(3, 40), name="first"))
        writer.put(people(*range(10), name="second"))
        writer.flush()
        writer.put(people(*range(60, 70), name="tail"))
        writer.put(people(*range(65, 75), name="newest"))
        # What a writer leaves that died: closing would flush the rest.
        shutil.copytree(uri, f"{uri}.template")


def _written_by_pylance(uri: str) -> None:
    make_people_table(uri, rows=people(*range(5)), buckets=2)
    for number, ids in ((1, range(0, 40, 2)), (2, range(1, 40, 2))):
        write_native_generations(uri, native_region_id(number), [[Put(people(*ids, name="first"))]])
    _publish(uri)
    shutil.copytree(uri, f"{uri}.template")


def _written_by_lancedb(uri: str) -> None:
    place = Path(uri)
    client = lancedb.connect(str(place.parent))
    table: Any = client.create_table(place.stem, people(*range(5)), schema=PEOPLE)
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.bucket("id", 2))
    for rows in _by_bucket(uri, people(*range(3, 40), name="first")):
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        table.close_lsm_writers()
    _publish(uri)
    shutil.copytree(uri, f"{uri}.template")


def _publish(uri: str) -> None:
    """Publish a region snapshot: nothing else names regions that other clients made and that were never merged."""
    Table.open(uri).run(SnapshotRequest())


def _by_bucket(uri: str, rows: pa.Table) -> list[pa.Table]:
    state = Table.open(uri).base.state()
    return [part.rows for part in RegionRouter(state.require_details().region_specs[0], state.field_ids).route(rows)]


MAKERS: Mapping[str, Callable[[str], None]] = {
    "lance": lambda uri: _written_by_us(uri, "lance"),
    "arrow": lambda uri: _written_by_us(uri, "arrow"),
    "pylance": _written_by_pylance,
    "lancedb": _written_by_lancedb,
}
"""Who wrote the table, and in which codec."""


def make_victim(uri: str, maker: str) -> Victim:
    """Make a table and its template.

    Args:
        uri: Where; nothing may be there. ``.lance`` at its end for LanceDB.
        maker: One of ``MAKERS``.
    """
    MAKERS[maker](uri)
    shutil.rmtree(uri)
    shutil.copytree(f"{uri}.template", uri)
    table = Table.open(uri)
    manifests = table.opened.manifests
    hurt, healthy = manifests.load_many(manifests.region_ids())
    flushed, durable = as_model(table.to_arrow()), as_model(table.to_arrow(consistency="durable"))
    suffix = LANCE_WAL_SUFFIX if maker == "lance" else ARROW_WAL_SUFFIX
    hurt_keys, healthy_keys = _keys_in(table, hurt.region_id), _keys_in(table, healthy.region_id)
    return Victim(uri, hurt, healthy, suffix, flushed, durable, hurt_keys, healthy_keys)


def _keys_in(table: Table, region_id: RegionId) -> frozenset[int]:
    view = OpenedTable(table.base, Surveyor(table.base, table.opened.manifests).survey(Consistency.DURABLE))
    region = next(each for each in view.everything.regions if each.region_id == region_id)
    return frozenset(key for each in region.generations for key in view.rows(each).keys.column("id").to_pylist())


def looked_up(table: Table, keys: frozenset[int], consistency: str = "latest") -> dict[int, str]:
    """Look keys up, as key -> name."""
    return as_model(table.lookup(keys_of(*sorted(keys)), consistency=consistency))

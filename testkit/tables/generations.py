"""Tables whose second generation can be damaged, written by our writer or by pylance's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.region import RegionManifest
from memwal_core.settings import Settings
from memwal_core.settings.writer import WriterSettings
from memwal_core.storage.protocol import ObjectStore
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.garbage import only_region
from testkit.tables.native_regions import Delete, Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import make_people_table, people

RIGHT = {2: "base", 3: "first", 4: "second", 5: "third", 6: "second"}
"""What readers must see: id -> name. Id 1 is deleted by the second generation, 5 is in the second and the third."""

WRITERS = ("ours", "ours, linked", "pylance")
"""Our writer packs the small WAL entries of a MemTable into one file, or is told to link each of them."""


def _keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@dataclass(frozen=True, slots=True)
class GenerationTable:
    """A table with one region and three generations, none of them merged.

    Attributes:
        table: The table.
        region_id: Its region.
        options: Storage options.
    """

    table: Table
    region_id: RegionId
    options: Mapping[str, str] | None = None

    @property
    def manifest(self) -> RegionManifest:
        """The newest region manifest."""
        return self.table.opened.manifests.load(self.region_id)

    @property
    def store(self) -> ObjectStore:
        """The table's store."""
        return self.table.base.store

    def directory(self, generation: int = 2) -> str:
        """Return the directory of a recorded generation, relative to the table."""
        [path] = [each.path for each in self.manifest.flushed_generations if each.generation == generation]
        return generation_path(self.region_id, path)

    def files(self, part: str = "") -> list[Path]:
        """Return files of the second generation on a local disk."""
        return sorted(path for path in (Path(self.table.uri) / self.directory() / part).rglob("*") if path.is_file())

    def seen(self) -> dict[int, str]:
        """Return what our reader shows: id -> name."""
        return _by_id(Table.open(self.table.uri, storage_options=self.options).to_arrow())

    def seen_by_pylance(self) -> dict[int, str]:
        """Return what pylance's reader shows."""
        return _by_id(native_scan(self.table.uri, [self.manifest], ["id", "name"], "id"))

    def merged(self) -> dict[int, str]:
        """Merge, and return the base table."""
        self.table.run(MergeRequest())
        return _by_id(lance.dataset(self.table.uri, storage_options=dict(self.options or {}) or None).to_table())


def make_generation_table(uri: str, writer: str, options: Mapping[str, str] | None = None) -> GenerationTable:
    """Write three generations; the second has several WAL entries, a key twice, and a tombstone.

    Args:
        uri: Where; nothing may be there.
        writer: One of ``WRITERS``.
        options: Storage options.
    """
    table = make_people_table(uri, rows=people(1, 2, name="base"), buckets=1, storage_options=options)
    if writer == "pylance":
        second: list[Put | Delete] = [
            Put(people(4, 5, name="early")),
            Delete(_keys(1)),
            Put(people(4, 5, 6, name="second")),
        ]
        generations: list[Sequence[Put | Delete]] = [
            [Put(people(1, 3, name="first"))],
            second,
            [Put(people(5, name="third"))],
        ]
        write_native_generations(uri, native_region_id(1), generations)
    else:
        settings = Settings(writer=WriterSettings(pack_below_bytes=0)) if writer == "ours, linked" else Settings()
        with TableWriter.open(table.with_settings(settings)) as ours:
            ours.put(people(1, 3, name="first"))
            ours.flush()
            ours.put(people(4, 5, name="early"))
            ours.delete(_keys(1))
            ours.put(people(4, 5, 6, name="second"))
            ours.flush()
            ours.put(people(5, name="third"))
            ours.flush()
    opened = Table.open(uri, storage_options=options)
    return GenerationTable(opened, only_region(opened), options)


def _by_id(rows: pa.Table) -> dict[int, str]:
    return dict(sorted(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True)))

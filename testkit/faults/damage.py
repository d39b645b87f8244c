"""Damage to real tables, one invariant at a time, behind the back of everything that would refuse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from memwal_core.base_table import BaseTable, MemWalEntry
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import decode_details, encode_details
from memwal_core.format.paths import manifest_path, region_directory, wal_directory, wal_entry_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.format.table_manifest import replace_mem_wal_entry
from memwal_core.ids import RegionId
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.storage import ObjectStore


@dataclass(frozen=True)
class Vandal:
    """Changes stored state without asking anybody.

    Attributes:
        table: The table to damage.
    """

    table: BaseTable

    @property
    def store(self) -> ObjectStore:
        """The table's store."""
        return self.table.store

    @property
    def manifests(self) -> ManifestStore:
        """The table's region manifests."""
        return ManifestStore(self.store, self.table.ids)

    def index_payload(self, payload: bytes, version: int | None = None) -> None:
        """Replace the payload of the MemWAL index in the manifest of a table version, by default the newest."""
        self._change_entry(lambda entry: MemWalEntry(entry.index_id, payload), version)

    def details(self, change: Callable[[MemWalIndexDetails], MemWalIndexDetails]) -> None:
        """Change the MemWAL index in the newest table manifest, whatever the rules say."""
        self._change_entry(
            lambda entry: MemWalEntry(entry.index_id, encode_details(change(decode_details(entry.payload))))
        )

    def manifest(self, region_id: RegionId, **values: object) -> RegionManifest:
        """Write the next version of a region manifest with some fields changed, whatever the rules say."""
        stored = self.manifests.load(region_id)
        wanted = replace(stored, version=stored.version + 1, **values)  # type: ignore[arg-type]
        self.store.put(manifest_path(region_id, wanted.version), encode_manifest(wanted))
        return wanted

    def garble_manifest(self, region_id: RegionId) -> None:
        """Make the newest version of a region manifest unreadable."""
        self.store.put(manifest_path(region_id, self.manifests.load(region_id).version), b"\xff" * 8)

    def remove(self, region_id: RegionId, relative: str) -> int:
        """Remove everything at or below a path of a region; the number of objects."""
        prefix = f"{region_directory(region_id)}/{relative}"
        doomed = [info.path for info in self.store.list_objects(prefix.rpartition("/")[0])]
        doomed = [path for path in doomed if path == prefix or path.startswith(f"{prefix}/")]
        for path in doomed:
            self.store.delete(path)
        return len(doomed)

    def wal_ids(self, region_id: RegionId, suffix: str) -> list[int]:
        """Return the WAL entries of a region, ascending."""
        found: list[int] = []
        paths = {info.path for info in self.store.list_objects(wal_directory(region_id))}
        wal_id = 1
        while len(found) < len([path for path in paths if path.endswith(suffix)]):
            if wal_entry_path(region_id, wal_id, suffix) in paths:
                found.append(wal_id)
            wal_id += 1
        return found

    def copy_wal_entry(self, region_id: RegionId, source: tuple[int, str], target: tuple[int, str]) -> None:
        """Copy a WAL entry to another position or suffix."""
        data = self.store.get(wal_entry_path(region_id, *source))
        self.store.put(wal_entry_path(region_id, *target), data)

    def copy_directory(self, region_id: RegionId, source: str, target: str) -> None:
        """Copy a directory of a region."""
        prefix = region_directory(region_id)
        for info in list(self.store.list_objects(f"{prefix}/{source}")):
            relative = info.path.removeprefix(f"{prefix}/{source}/")
            self.store.put(f"{prefix}/{target}/{relative}", self.store.get(info.path))

    def _change_entry(self, change: Callable[[MemWalEntry], MemWalEntry], version: int | None = None) -> None:
        info = self.table.manifests.locate(version or self.table.dataset().version)
        self.store.put(info.path, replace_mem_wal_entry(self.store.get(info.path), change))

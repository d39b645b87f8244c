"""Opening the Lance table of a flushed MemTable: over the files of its own region, wherever the table lies now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import lance
from lance.lance import _Session

from memwal_core.base_table import decoding, require_sound, translated
from memwal_core.errors import DamagedError
from memwal_core.flushed.wal_files import WAL_BASE_NAME
from memwal_core.format.paths import MEM_WAL_DIRECTORY
from memwal_core.format.table_manifest import with_base_path
from memwal_core.native.waiting import in_time
from memwal_core.storage import ObjectStore, StoreKind, open_store
from memwal_core.storage.concurrent import map_concurrently

_REQUESTS = 8


def open_generation(
    uri: str,
    storage_options: Mapping[str, str],
    session: _Session | None = None,
    within: ObjectStore | None = None,
) -> lance.LanceDataset:
    """Open a flushed MemTable's dataset at its newest version; ``session`` shares caches with other datasets.

    ``within`` is the store of its table; None if the caller has none.

    One that has no links to its WAL entries names them by an address, which is wrong after the table was copied or
    moved. It is opened over the WAL of the region in which it lies, never over another table's.

    Raises:
        ObjectNotFoundError: No dataset is there; it may have been merged and collected.
        DamagedError: It refers to other files than its region's WAL entries, or one of these is missing or has
            another size than when it was flushed.
        CorruptionError: Something in its directory is not a file, or its columns cannot be handed over.
        UnavailableError: The store did not answer, or not in time.
    """
    store, directory = store_of(uri, storage_options, within)
    store.require_files([directory])
    with translated("open a flushed MemTable", uri):
        dataset = in_time(
            lambda: lance.dataset(uri, storage_options=dict(storage_options) or None, session=session), storage_options
        )
        bases = [(base.name, base.is_dataset_root, base.path) for base in dataset.base_paths().values()]
    require_sound(dataset)
    require_data(dataset)
    if not bases:
        return dataset
    region, own = _region_of(uri), wal_of(uri)
    for name, is_root, recorded in bases:
        if name != WAL_BASE_NAME or is_root or recorded.split("/")[-2:] != [region, "wal"]:
            raise DamagedError(
                "a flushed MemTable refers to files outside of its region",
                remedy="find out which program wrote it; after a copy or move by hand, run `memwal relocate URI`",
                region_id=region,
                path=uri,
                cause=f"it refers to {recorded} instead of {own}",
                recorded=recorded,
                expected=own,
            )
    if any(recorded != own for _, _, recorded in bases):
        with translated("open a flushed MemTable at its new address", uri):
            moved = with_base_path(bytes(dataset._ds.serialized_manifest()), own)  # noqa: SLF001 - no public way
            dataset = lance.LanceDataset(
                uri,
                version=dataset.version,
                serialized_manifest=moved,
                storage_options=dict(storage_options) or None,
                session=session,
            )
    _require_files(dataset, uri, store, [recorded for _, _, recorded in bases])
    return dataset


def require_data(dataset: lance.LanceDataset) -> None:
    """Refuse a flushed MemTable with a fragment that names no data file, at which Lance fails in many ways.

    Raises:
        CorruptionError: It has one.
    """
    with decoding(dataset.uri):
        empty = [fragment.fragment_id for fragment in dataset.get_fragments() if not fragment.metadata.files]
        if empty:
            raise ValueError(f"fragment {empty[0]} names no data file")


def wal_of(uri: str) -> str:
    """Return the address of the WAL of the region in which a flushed MemTable lies."""
    return f"{uri.rpartition('/')[0]}/wal"


def shared_files(dataset: lance.LanceDataset) -> dict[str, int | None]:
    """Return the WAL entries that a flushed MemTable names by an address: file name -> size when it was flushed."""
    return {
        file.path: file.file_size_bytes
        for fragment in dataset.get_fragments()
        for file in fragment.metadata.files
        if file.base_id is not None
    }


def _region_of(uri: str) -> str:
    return uri.split("/")[-2]


def _require_files(dataset: lance.LanceDataset, uri: str, store: ObjectStore, recorded: list[str]) -> None:
    expected = shared_files(dataset)
    _, directory = _place_of(wal_of(uri))

    def size_of(name: str) -> int | None:
        info = store.head(f"{directory}/{name}")
        return None if info is None else info.size_bytes

    found = map_concurrently(size_of, expected, 1 if store.kind is StoreKind.LOCAL else _REQUESTS)
    for (name, size), actual in zip(expected.items(), found, strict=True):
        if actual == size or (size is None and actual is not None):
            continue
        if actual is None:
            with translated("open a flushed MemTable", uri):
                lance.dataset(uri, storage_options=dict(store.storage_options) or None)  # Collected meanwhile?
        raise DamagedError(
            "a WAL entry that a flushed MemTable consists of is missing"
            if actual is None
            else "a WAL entry has another size than when it was flushed",
            remedy="run `memwal repair`, or restore the entry from a copy of this table; after a copy or move by hand, "
            "run `memwal relocate URI`; other regions can be used meanwhile",
            region_id=_region_of(uri),
            path=f"{directory}/{name}",
            cause="it is missing" if actual is None else f"it has {actual} bytes instead of {size}",
            flushed=uri,
            recorded=recorded,
            expected=wal_of(uri),
        )


def store_of(
    uri: str, storage_options: Mapping[str, str], within: ObjectStore | None = None
) -> tuple[ObjectStore, str]:
    """Return the store of the table in which a directory lies, ``within`` if it is known, and the path in it."""
    root, directory = _place_of(uri)
    return (within if within is not None else _store(root, tuple(sorted(storage_options.items())))), directory


def _place_of(uri: str) -> tuple[str, str]:
    root, found, inner = uri.rpartition(f"/{MEM_WAL_DIRECTORY}/")
    if found:
        return root, f"{MEM_WAL_DIRECTORY}/{inner}"
    root, _, directory = uri.rpartition("/")  # A table of its own.
    return root, directory


@lru_cache(maxsize=4)
def _store(root: str, storage_options: tuple[tuple[str, str], ...]) -> ObjectStore:
    return open_store(root, storage_options=dict(storage_options))

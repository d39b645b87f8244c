"""Proving that a copy is complete and can be read, without looking at the original."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError
from memwal_core.flushed.read import check_contents, open_generation
from memwal_core.format.paths import WAL_SUFFIXES, generation_path, parse_numbered_name, wal_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.backup.plan import CopyMoment, files_to_copy
from memwal_core.jobs.context import OpenTable
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import codec_for_suffix


def prove(copy: OpenTable, moment: CopyMoment) -> dict[str, int]:
    """Compare a copy with the moment that it is meant to be; return what was looked at.

    Sizes of all files, rows of the version and of every flushed MemTable, and the checksums of all WAL entries.

    Raises:
        CorruptionError: Something is missing or different.
    """
    store = copy.base.store
    present = {each.path: each.size_bytes for each in store.list_objects("")}
    names: dict[str, list[str]] = defaultdict(list)
    for path in present:
        directory, _, name = path.rpartition("/")
        names[directory].append(name)
    wrong = [each.target for each in files_to_copy(moment, present)]
    wrong += sorted(moment.paths - present.keys())
    if wrong:
        raise _different(copy, "files are missing or have another length", paths=wrong[:20])
    dataset = copy.base.dataset()
    with translated("verify a copy", copy.uri):
        dataset.validate()  # type: ignore[no-untyped-call]
        rows = dataset.count_rows()
    if dataset.version != moment.version or rows != moment.rows:
        raise _different(
            copy, "the base table is another one", version=dataset.version, rows=rows, expected_rows=moment.rows
        )
    manifests = copy.manifests.load_many(copy.manifests.region_ids())
    if len(manifests) != moment.regions:
        raise _different(copy, "regions are missing", regions=len(manifests), expected=moment.regions)
    details = copy.base.require_mem_wal()
    wanted = [
        (each.region_id, recorded)
        for each in manifests
        for recorded in each.flushed_generations
        if recorded.generation > details.merged_generations.get(each.region_id, 0)
    ]
    concurrency = copy.settings.storage.concurrency
    flushed = map_concurrently(lambda each: _check_generation(copy, *each), wanted, concurrency)
    entries = map_concurrently(
        lambda each: _check_wal(copy, each, names.get(wal_directory(each.region_id), [])), manifests, concurrency
    )
    return {
        "files": len(moment.files),
        "base_rows": rows,
        "flushed_memtables": len(wanted),
        "flushed_rows": sum(flushed),
        "wal_entries": sum(entries),
    }


def _check_generation(copy: OpenTable, region_id: RegionId, recorded: FlushedGeneration) -> int:
    uri = copy.base.store.uri_of(generation_path(region_id, recorded.path))
    dataset = open_generation(uri, copy.base.store.storage_options)
    with translated("verify a flushed MemTable", uri):
        dataset.validate()  # type: ignore[no-untyped-call]
        rows = sum(each.physical_rows for each in dataset.get_fragments())
    if recorded.physical_rows is not None and rows != recorded.physical_rows:
        raise _different(
            copy, "a flushed MemTable has other rows", path=uri, rows=rows, expected=recorded.physical_rows
        )
    if recorded.wal_digest is not None:
        check_contents(copy.base.store, region_id, recorded)
    return rows


def _check_wal(copy: OpenTable, manifest: RegionManifest, names: Collection[str]) -> int:
    checked = 0
    for suffix in WAL_SUFFIXES:
        codec = codec_for_suffix(suffix, {})
        for name in names:
            if name.endswith(suffix) and (number := parse_numbered_name(name, suffix)) > manifest.replay_after_wal_id:
                codec.read(copy.base.store, manifest.region_id, number)
                checked += 1
    return checked


def _different(copy: OpenTable, what: str, **facts: object) -> CorruptionError:
    return CorruptionError(
        f"the copy is not what was copied: {what}",
        remedy="do not use it; empty the target and run again, and report this if it persists",
        target=copy.uri,
        **facts,
    )

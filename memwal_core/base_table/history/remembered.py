"""What the manifests of older versions said, so that a collection of a table with a long history reads the new ones.

A manifest never changes. One whose size, time or entity tag is not the remembered one is read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from memwal_core.base_table.history.progress import MergedGenerations, ProgressLine, changes
from memwal_core.base_table.history.retained import FEW_VERSIONS, RetainedVersion
from memwal_core.errors import MemwalError, ObjectNotFoundError
from memwal_core.format.document import as_moment, as_number, as_text, encode_document, parse_document
from memwal_core.format.malformed import MalformedError
from memwal_core.format.paths import REMEMBERED_VERSIONS_PATH
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.storage import ObjectInfo, ObjectStore
from memwal_core.storage.limits import MAX_NOTE_BYTES

_MOST_CHANGES = 500_000
_OF_A_VERSION = 50
"""Changes of progress that are remembered, and as how many a version counts; older versions are read each time."""

_log = logging.getLogger(__name__)


def recall_versions(store: ObjectStore) -> Mapping[ObjectInfo, RetainedVersion]:
    """Return what is remembered, by the manifest as the store showed it; empty if nothing can be used."""
    try:
        document = parse_document(store.get(REMEMBERED_VERSIONS_PATH, MAX_NOTE_BYTES), MAX_NOTE_BYTES)
        return {each.manifest: each for each in _decoded(document) if each.manifest is not None}
    except ObjectNotFoundError:
        return {}
    except (MemwalError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        _log.warning(
            "what is remembered of old versions is not used [path=%s]: %s",
            store.uri_of(REMEMBERED_VERSIONS_PATH),
            error,
        )
        return {}


def remember_versions(store: ObjectStore, versions: Sequence[RetainedVersion], guard: Callable[[], None]) -> None:
    """Replace what is remembered if something is new; not being able to costs nothing but the reading of it.

    Args:
        store: Objects below the table's root.
        versions: All that are retained.
        guard: Called before the write; raises where the right to it was lost.
    """
    known = [each for each in versions if each.manifest is not None]
    if len(known) <= FEW_VERSIONS or all(each.is_recalled for each in known):
        return
    guard()
    kept: list[tuple[RetainedVersion, MergedGenerations]] = []
    room = _MOST_CHANGES
    for each, before in zip(reversed(known), [*reversed(known[:-1]), None], strict=True):
        changed = each.merged if before is None else changes(before.merged, each.merged)
        room -= _OF_A_VERSION + len(changed)
        if room < len(each.merged):
            kept.append((each, each.merged))  # The oldest one has its whole progress.
            break
        kept.append((each, changed))
    try:
        store.put(REMEMBERED_VERSIONS_PATH, encode_document(_encoded(reversed(kept))))
    except MemwalError as error:
        _log.warning("what old versions say is not remembered [store=%s]: %s", store.uri, error)


def _encoded(kept: Iterable[tuple[RetainedVersion, MergedGenerations]]) -> dict[str, object]:
    places: dict[RegionId, int] = {}
    versions = []
    for each, changed in kept:
        info = each.manifest
        if info is not None:
            manifest = [info.path, info.size_bytes, info.modified.isoformat(), info.etag]
            facts = [each.version, each.branch, each.enabled, each.legacy, each.begins_clone]
            numbers = [[places.setdefault(region_id, len(places)), merged] for region_id, merged in changed.items()]
            versions.append([*manifest, *facts, list(chain.from_iterable(numbers))])
    regions = [str(each) for each in places]
    return {"sha256": _digest(regions, versions), "regions": regions, "versions": versions}


def _decoded(document: Mapping[str, Any]) -> Iterator[RetainedVersion]:
    versions = document["versions"]
    if document["sha256"] != _digest(document["regions"], versions):
        raise MalformedError("its checksum is another one")
    regions = [parse_region_id(as_text(each)) for each in document["regions"]]
    line = ProgressLine()
    whole: MergedGenerations = {}
    merged = line.next(whole)
    for path, size_bytes, written, etag, version, branch, enabled, legacy, begins_clone, numbers in versions:
        modified = as_moment(written)
        if numbers:
            pairs = zip(map(as_number, numbers[::2]), map(as_number, numbers[1::2]), strict=True)
            whole = {**whole, **{regions[place]: generation for place, generation in pairs}}
            whole = {region_id: generation for region_id, generation in whole.items() if generation}
            merged = line.next(whole)
        yield RetainedVersion(
            version=as_number(version),
            branch=None if branch is None else as_text(branch),
            enabled=enabled is True,
            legacy=legacy is True,
            merged=merged,
            modified=modified,
            begins_clone=begins_clone is True,
            manifest=ObjectInfo(
                as_text(path), as_number(size_bytes), modified, None if etag is None else as_text(etag)
            ),
            is_recalled=True,
        )


def _digest(regions: object, versions: object) -> str:
    return hashlib.sha256(encode_document([regions, versions])).hexdigest()

"""The decoder of each kind of file by itself: thousands of cases in the time in which a table is looked at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.coordination.freeze.document import decode_record
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease.document import decode_lease
from memwal_core.coordination.ledger.codec import decode_history, runs_table
from memwal_core.errors import MemwalError
from memwal_core.format.deletion_vector import count_deleted
from memwal_core.format.malformed import MalformedError
from memwal_core.format.memwal_index.codec import decode_details, encode_details
from memwal_core.format.memwal_index.legacy_codec import decode_legacy
from memwal_core.format.memwal_index.snapshot import normalise_snapshot, snapshot_manifests
from memwal_core.format.memwal_index.snapshot_file import snapshot_from_bytes
from memwal_core.format.paths import MANIFEST_SUFFIX, parse_numbered_name
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.format.table_manifest import read_manifest, read_named_files
from memwal_core.ids import parse_region_id
from memwal_core.jobs.backup.plan import Journal
from memwal_core.key_filter import KeyFilter
from memwal_core.observe.lifecycle import generation_states
from memwal_core.region.invariants import manifest_violations
from memwal_core.region.spec import RegionRouter
from memwal_core.wal.arrow_codec import ArrowCodec
from memwal_core.wal.lance_codec import LanceCodec
from testkit.fuzz.case import Attack
from testkit.tables.people import people
from testkit.tables.readable import keys_of

Decode = Callable[[Attack], object]


def _base_manifest(attack: Attack) -> None:
    data = attack.data
    facts = read_manifest(len(data), lambda start, length: data[start : start + length])
    with suppress(MemwalError):
        read_named_files(data)
    if facts.mem_wal is None:
        return
    with suppress(MemwalError):
        decode_legacy(facts.mem_wal.payload, 1)
    details = decode_details(facts.mem_wal.payload)
    encode_details(details, base=facts.mem_wal.payload)
    with suppress(MemwalError):
        if details.inline_snapshots is not None:
            _snapshot(details.inline_snapshots)
    rows = people(*range(8))
    for spec in details.region_specs:
        with suppress(MemwalError):
            RegionRouter(spec, {"id": 0, "name": 1, "score": 2}).route(rows)


def _snapshot(data: bytes) -> None:
    table = normalise_snapshot(snapshot_from_bytes(data), _DETAILS)
    for manifest in snapshot_manifests(table):
        manifest_violations(manifest)


_DETAILS = decode_details(b"")


def _region_manifest(attack: Attack) -> None:
    region_id = parse_region_id(attack.path.parent.parent.name)
    version = parse_numbered_name(attack.path.name, MANIFEST_SUFFIX)
    manifest = decode_manifest(attack.data, region_id=region_id, version=version)
    encode_manifest(manifest)
    if not manifest_violations(manifest):
        recorded = [each.generation for each in manifest.flushed_generations]
        generation_states(1, recorded, manifest.current_generation)


def _wal_entry(attack: Attack) -> None:
    region_id = parse_region_id(attack.path.parent.parent.name)
    suffix = attack.path.suffix
    wal_id = parse_numbered_name(attack.path.name, suffix)
    codec = LanceCodec({}) if suffix == ".lance" else ArrowCodec({})
    entry = codec.decode(_base(attack).store, region_id, wal_id, attack.data)
    entry.rows.validate(full=True)
    str(entry.rows.to_pylist())


@cache
def _opened(uri: str) -> TableReader:
    return TableReader.open(uri)


def _base(attack: Attack) -> TableReader:
    return _opened(str(attack.table))


def _key_filter(attack: Attack) -> None:
    place = str(attack.path.parent.relative_to(attack.table))
    found = KeyFilter.from_bytes(attack.data, place)
    if found.bounds.schema.names == ["id"] and found.bounds.schema.types == [pa.int64()]:
        found.may_contain(keys_of(1, 20, 1_000))


def _lease(attack: Attack) -> None:
    decode_lease(attack.data, attack.path.name)


def _history(attack: Attack) -> None:
    history = decode_history(attack.data, JobKey("merge"), attack.path.name)
    runs_table("somewhere", history.runs).validate(full=True)
    json.dumps(dict(history.runs[-1].facts) if history.runs else {}).encode()


def _record(attack: Attack) -> None:
    json.dumps([each.to_dict() for each in decode_record(attack.data, attack.path.name).freezes])


def _journal(attack: Attack) -> None:
    Journal.decode(attack.data, attack.path.name).encode()


def _deletion_vector(attack: Attack) -> None:
    with suppress(MalformedError):
        count_deleted(attack.data)


DECODERS: Mapping[str, Decode] = MappingProxyType(
    {
        "base table manifest": _base_manifest,
        "newest base table manifest": _base_manifest,
        "index details": _base_manifest,
        "inline snapshot": _base_manifest,
        "snapshot file": lambda attack: _snapshot(attack.data),
        "region manifest": _region_manifest,
        "newest region manifest": _region_manifest,
        "WAL entry": _wal_entry,
        "Arrow WAL entry": _wal_entry,
        "flushed manifest": _base_manifest,
        "deletion vector": _deletion_vector,
        "key filter": _key_filter,
        "lease": _lease,
        "ledger": _history,
        "freeze": _record,
        "backup journal": _journal,
    }
)
"""KindOfFile of file -> reads the bytes of an attack. Anything but an error of ours is a finding."""

import uuid
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import (
    FlushedGeneration,
    ManifestStore,
    RegionManifest,
    RegionStatus,
    claim,
    drain,
    manifest_violations,
    raise_wal_hint,
    record_flush,
    transition_violations,
)
from memwal_core.region.invariants import (
    CLAIM_FIELDS,
    DRAIN_FIELDS,
    FLUSH_FIELDS,
    HINT_FIELDS,
    changed_fields,
    generations_are_flushed,
    generations_ascend,
)
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
U64 = st.integers(0, 2**64 - 1)
NAMES = st.from_regex(r"[0-9a-f]{4,8}_gen_[1-9][0-9]{0,3}", fullmatch=True)
FIELD_99 = st.integers(0, 127).map(lambda value: bytes([0x98, 0x06, value]))
RECORDS = st.builds(
    FlushedGeneration,
    st.integers(1, 40),
    NAMES,
    in_memory_bytes=st.none() | U64,
    physical_rows=st.none() | U64,
    unknown=st.just(b"") | FIELD_99,
)
MANIFESTS = st.builds(
    RegionManifest,
    region_id=st.uuids().map(RegionId),
    version=st.integers(1, 2**64 - 1),
    region_spec_id=st.integers(0, 2**32 - 1),
    region_field_values=st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=3),
    writer_epoch=U64,
    replay_after_wal_id=U64,
    wal_id_last_seen=U64,
    current_generation=U64,
    flushed_generations=st.lists(RECORDS, max_size=5).map(tuple),
    status=st.sampled_from(RegionStatus),
    commit_id=st.binary(max_size=16),
    unknown=st.just(b"") | FIELD_99,
)

CLAIM, FLUSH, HINT, DRAIN = ALLOWED = (CLAIM_FIELDS, FLUSH_FIELDS, HINT_FIELDS, DRAIN_FIELDS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(CLAIM), st.none()),
        st.tuples(st.just(FLUSH), st.integers(0, 9)),
        st.tuples(st.just(HINT), st.integers(0, 99)),
        st.tuples(st.just(DRAIN), st.sets(st.integers(1, 9), max_size=4)),
    ),
    max_size=20,
)


def _apply(manifests: ManifestStore, kind: frozenset[str], argument) -> RegionManifest:
    if kind is CLAIM:
        return claim(manifests, REGION)
    if kind is HINT:
        return manifests.update(REGION, lambda stored: raise_wal_hint(stored, argument))
    if kind is DRAIN:
        return manifests.update(REGION, lambda stored: drain(stored, argument))

    def flush(stored: RegionManifest) -> RegionManifest | None:
        record = FlushedGeneration(stored.current_generation, f"aa_gen_{stored.current_generation}")
        return record_flush(stored, record, stored.replay_after_wal_id + argument, 0)

    return manifests.update(REGION, flush)


@pytest.mark.req("MAN-16", "MAN-17", "MAN-18", "MAN-19", "MAN-20", "MAN-22", "MAN-23", "MAN-25", "MAN-26", "G-12")
@settings(derandomize=True, deadline=None, max_examples=60)
@given(STEPS)
def test_any_order_of_triggers_touches_only_their_fields(steps: list) -> None:
    manifests = ManifestStore(
        open_store("memory:///histories"), IdSource(seeded_rng(1)), clock=ManualClock(), rng=seeded_rng(1)
    )
    stored = manifests.create(REGION)
    claims = flushes = 0
    for kind, argument in steps:
        written = _apply(manifests, kind, argument)
        assert changed_fields(written, stored) <= kind
        for name in {item.name for item in fields(RegionManifest)} - kind - {"version", "commit_id"}:
            assert getattr(written, name) == getattr(stored, name)
        assert written.version - stored.version == (1 if changed_fields(written, stored) else 0)
        assert written.writer_epoch - stored.writer_epoch == (1 if kind is CLAIM else 0)
        assert written.replay_after_wal_id >= stored.replay_after_wal_id
        assert written.wal_id_last_seen >= stored.wal_id_last_seen
        assert manifest_violations(written) == []
        claims += kind is CLAIM
        flushes += kind is FLUSH
        stored = written
    assert manifests.load(REGION) == stored
    assert (stored.writer_epoch, stored.current_generation) == (claims, 1 + flushes)


@pytest.mark.req("MAN-03", "MAN-20", "MAN-21", "MAN-22", "MAN-23", "G-12")
@settings(derandomize=True, deadline=None)
@given(MANIFESTS, MANIFESTS)
def test_transition_that_passes_the_rules_never_goes_back(new: RegionManifest, old: RegionManifest) -> None:
    for name in ("region_id", "region_spec_id", "writer_epoch", "replay_after_wal_id"):
        if getattr(new, name) < getattr(old, name):
            assert transition_violations(new, old)


@pytest.mark.req("MAN-26")
@settings(derandomize=True, deadline=None)
@given(st.lists(RECORDS, max_size=5), st.integers(1, 40))
def test_record_rules_accept_exactly_ascending_flushed_generations(
    records: list[FlushedGeneration], current: int
) -> None:
    manifest = RegionManifest(region_id=REGION, current_generation=current, flushed_generations=tuple(records))
    numbers = [record.generation for record in records]
    assert (generations_ascend(manifest) is None) == (numbers == sorted(set(numbers)))
    assert (generations_are_flushed(manifest) is None) == all(number < current for number in numbers)


@pytest.mark.req("FMT-22", "FMT-32", "FMT-44")
@settings(derandomize=True, deadline=None)
@given(MANIFESTS)
def test_any_manifest_comes_back_from_its_bytes(manifest: RegionManifest) -> None:
    decoded = decode_manifest(encode_manifest(manifest), region_id=manifest.region_id, version=manifest.version)
    assert decoded == manifest
    assert decoded.commit_id == manifest.commit_id

import logging
import uuid
from dataclasses import replace

import pytest

from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.paths import manifest_directory, manifest_path, version_hint_path
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import (
    FlushedGeneration,
    ManifestStore,
    RegionManifest,
    RegionStatus,
    claim,
    drain,
    raise_wal_hint,
    record_flush,
)
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
OTHER = RegionId(uuid.UUID("11111111-2222-4333-8444-555555555555"))
HINT = version_hint_path(manifest_directory(REGION))
FIELD_99 = bytes.fromhex("980607")


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory:///manifests"))


def _process(store: FaultyStore, seed: int = 1) -> ManifestStore:
    return ManifestStore(store, IdSource(seeded_rng(seed)), clock=ManualClock(), rng=seeded_rng(seed))


@pytest.fixture
def manifests(store: FaultyStore) -> ManifestStore:
    return _process(store)


def _raise_to(wal_id: int):
    return lambda stored: raise_wal_hint(stored, wal_id)


@pytest.mark.req("MAN-30", "MAN-02", "MAN-21", "FMT-45")
def test_created_region_has_the_first_state(manifests: ManifestStore) -> None:
    created = manifests.create(REGION)
    assert created == RegionManifest(
        region_id=REGION,
        version=1,
        region_spec_id=0,
        region_field_values={},
        writer_epoch=0,
        replay_after_wal_id=0,
        wal_id_last_seen=0,
        current_generation=1,
        flushed_generations=(),
        status=RegionStatus.ACTIVE,
    )
    loaded = manifests.load(REGION)
    assert loaded == created
    assert loaded.commit_id == created.commit_id != b""


@pytest.mark.req("MAN-30", "MAN-21")
def test_created_region_keeps_spec_values_and_status(manifests: ManifestStore) -> None:
    manifests.create(REGION, region_spec_id=7, region_field_values={"f": b"\x01", "g": b""}, status=RegionStatus.SEALED)
    loaded = manifests.load(REGION)
    assert (loaded.region_spec_id, dict(loaded.region_field_values)) == (7, {"f": b"\x01", "g": b""})
    assert loaded.status is RegionStatus.SEALED


@pytest.mark.req("MAN-30")
def test_second_creation_of_a_region_is_refused(manifests: ManifestStore) -> None:
    manifests.create(REGION)
    claim(manifests, REGION)
    with pytest.raises(ObjectExistsError):
        manifests.create(REGION)
    assert manifests.load(REGION).version == 2


@pytest.mark.req("MAN-30")
def test_creation_after_old_versions_were_deleted_is_refused(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    for wal_id in range(1, 4):
        manifests.update(REGION, _raise_to(wal_id))
    manifests.delete_versions_before(REGION, 3)
    store.delete(HINT)
    with pytest.raises(ObjectExistsError):
        manifests.create(REGION)


@pytest.mark.req("MAN-30", "MAN-04")
def test_creation_that_loses_the_race_is_refused(store: FaultyStore) -> None:
    first, second = _process(store, 1), _process(store, 2)
    store.add(Rule(lambda _: second.create(REGION), Moment.BEFORE, frozenset({"put_if_absent"})))
    with pytest.raises(ObjectExistsError):
        first.create(REGION)


@pytest.mark.req("FMT-45")
@pytest.mark.parametrize("version", [1, 3])
def test_region_id_of_another_uuid_version_is_refused(manifests: ManifestStore, version: int) -> None:
    with pytest.raises(InvalidRequestError):
        manifests.create(RegionId(uuid.UUID(int=REGION.int, version=version)))
    assert manifests.region_ids() == []


@pytest.mark.req("FMT-45")
def test_new_region_ids_are_version_four_and_distinct() -> None:
    ids = IdSource(seeded_rng(3))
    made = {ids.region_id() for _ in range(10_000)}
    assert len(made) == 10_000
    assert {region_id.version for region_id in made} == {4}


def test_missing_region_is_not_found(manifests: ManifestStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        manifests.load(REGION)


@pytest.mark.req("FMT-01", "FMT-04", "FMT-21", "MAN-02", "MAN-03")
def test_three_commits_leave_four_versions_and_a_hint(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    for wal_id in (1, 2, 3):
        manifests.update(REGION, _raise_to(wal_id))
    paths = {info.path for info in store.list_objects("_mem_wal")}
    assert paths == {HINT, *(manifest_path(REGION, version) for version in (1, 2, 3, 4))}
    assert store.get(HINT) == b'{"version": 4}'
    assert [manifests.load_version(REGION, version).version for version in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert [manifests.load_version(REGION, version).wal_id_last_seen for version in (1, 2, 3, 4)] == [0, 1, 2, 3]


@pytest.mark.req("MAN-03", "MAN-31")
def test_file_under_another_number_is_corrupt(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.put(manifest_path(REGION, 2), store.get(manifest_path(REGION, 1)))
    with pytest.raises(CorruptionError):
        manifests.load(REGION)


@pytest.mark.req("MAN-31")
def test_truncated_newest_version_is_an_error_and_not_skipped(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    manifests.update(REGION, _raise_to(1))
    store.put(manifest_path(REGION, 2), store.get(manifest_path(REGION, 2))[:-3])
    with pytest.raises(CorruptionError):
        manifests.load(REGION)
    with pytest.raises(CorruptionError):
        manifests.update(REGION, _raise_to(9))


@pytest.mark.req("MAN-26", "MAN-31")
def test_stored_version_that_breaks_a_rule_is_corrupt(manifests: ManifestStore, store: FaultyStore) -> None:
    broken = RegionManifest(region_id=REGION, flushed_generations=(FlushedGeneration(4, "aa_gen_4"),))
    store.put(manifest_path(REGION, 1), encode_manifest(broken))
    with pytest.raises(CorruptionError, match="generations_are_flushed"):
        manifests.load(REGION)


@pytest.mark.req("MAN-06", "MAN-07", "MAN-08")
def test_commit_puts_the_next_version_and_then_the_hint(manifests: ManifestStore, store: FaultyStore) -> None:
    stored = manifests.create(REGION)
    store.calls.clear()
    manifests.commit(stored, raise_wal_hint(stored, 3))
    puts = [(call.operation, call.path) for call in store.calls if call.operation.startswith("put")]
    assert puts == [("put_if_absent", manifest_path(REGION, 2)), ("put", HINT)]
    assert store.count("list_objects", "list_directories") == 0


@pytest.mark.req("MAN-08")
def test_commit_succeeds_without_its_hint(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.fail("put", times=None)
    assert manifests.update(REGION, _raise_to(3)).version == 2
    assert manifests.load(REGION).wal_id_last_seen == 3


@pytest.mark.req("MAN-04", "MAN-05")
def test_second_commit_on_one_version_conflicts_and_leaves_the_first(store: FaultyStore) -> None:
    first, second = _process(store, 1), _process(store, 2)
    stored = first.create(REGION)
    first.commit(stored, raise_wal_hint(stored, 3))
    with pytest.raises(ConflictError):
        second.commit(stored, raise_wal_hint(stored, 4))
    assert first.load(REGION).wal_id_last_seen == 3


@pytest.mark.req("MAN-05")
def test_equal_commit_of_another_process_conflicts(store: FaultyStore) -> None:
    first, second = _process(store, 1), _process(store, 2)
    stored = first.create(REGION)
    first.commit(stored, raise_wal_hint(stored, 3))
    with pytest.raises(ConflictError):
        second.commit(stored, raise_wal_hint(stored, 3))


@pytest.mark.req("MAN-05")
def test_loser_of_a_race_applies_its_change_on_top(store: FaultyStore) -> None:
    job, writer = _process(store, 1), _process(store, 2)
    job.create(REGION)
    claim(writer, REGION)
    flushed = FlushedGeneration(1, "aa_gen_1")
    store.add(
        Rule(
            lambda _: writer.update(REGION, lambda stored: record_flush(stored, flushed, 4, 4)),
            Moment.BEFORE,
            frozenset({"put_if_absent"}),
        )
    )
    final = job.update(REGION, _raise_to(9))
    assert (final.version, final.wal_id_last_seen, final.flushed_generations) == (4, 9, (flushed,))


@pytest.mark.req("MAN-05")
def test_update_that_always_loses_gives_up_with_a_conflict(store: FaultyStore) -> None:
    clock = ManualClock()
    job, rival = ManifestStore(store, IdSource(seeded_rng(1)), clock=clock, rng=seeded_rng(1)), _process(store, 2)
    job.create(REGION)
    inside = []

    def overtake(_: object) -> None:
        if not inside:
            inside.append(True)
            claim(rival, REGION)
            inside.clear()

    store.add(Rule(overtake, Moment.BEFORE, frozenset({"put_if_absent"}), times=None))
    with pytest.raises(ConflictError):
        job.update(REGION, _raise_to(9))
    assert job.load(REGION).wal_id_last_seen == 0
    assert len(clock.sleeps) == 19
    assert max(clock.sleeps) <= 5.0


def test_update_with_nothing_to_do_writes_nothing(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.calls.clear()
    assert manifests.update(REGION, lambda stored: drain(stored, {1})).version == 1
    assert store.count("put", "put_if_absent") == 0


@pytest.mark.req("MAN-20", "MAN-21")
def test_commit_that_breaks_a_rule_is_refused_before_any_write(manifests: ManifestStore, store: FaultyStore) -> None:
    stored = manifests.create(REGION)
    store.calls.clear()
    with pytest.raises(InvalidRequestError, match="identity_stays"):
        manifests.commit(stored, replace(stored, region_spec_id=1))
    assert store.calls == []


@pytest.mark.req("MAN-05")
@pytest.mark.parametrize("lost", [1, 2])
def test_update_whose_replies_were_lost_settles_as_one_commit(
    manifests: ManifestStore, store: FaultyStore, lost: int
) -> None:
    manifests.create(REGION)
    store.lose_reply("put_if_absent", times=lost)
    calls = []

    def change(stored: RegionManifest) -> RegionManifest | None:
        calls.append(stored.version)
        return raise_wal_hint(stored, 3)

    written = manifests.update(REGION, change)
    assert (written.version, calls) == (2, [1])
    assert manifests.versions(REGION) == [1, 2]
    assert manifests.load(REGION).commit_id == written.commit_id


def test_lost_reply_followed_by_a_commit_of_others_still_settles_as_success(store: FaultyStore) -> None:
    writer, rival = _process(store, 1), _process(store, 2)
    writer.create(REGION)

    def proceed(call: object) -> None:
        rival.update(REGION, _raise_to(50))
        raise UnavailableError("no reply", remedy="retry")

    store.add(Rule(proceed, Moment.AFTER, frozenset({"put_if_absent"})))
    written = claim(writer, REGION)
    assert (written.version, written.writer_epoch) == (2, 1)
    assert writer.load(REGION).version == 3
    assert writer.load(REGION).writer_epoch == 1


def test_failed_put_is_offered_again_with_the_same_bytes(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.fail("put_if_absent", times=2)
    assert manifests.update(REGION, _raise_to(3)).version == 2


def test_commit_without_any_reply_is_unknown_and_names_its_id(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.lose_reply("put_if_absent", times=None)
    with pytest.raises(CommitUnknownError) as caught:
        manifests.update(REGION, _raise_to(3))
    store.heal()
    landed = manifests.load(REGION)
    assert (landed.version, landed.commit_id.hex()) == (2, caught.value.facts["commit_id"])


def _refuse(call: Call) -> None:
    raise StoreRefusedError("the store refused access", remedy="check credentials", path=call.path)


@pytest.mark.parametrize("refusals", [1, None])
def test_refusals_after_a_lost_reply_leave_the_outcome_unknown(
    manifests: ManifestStore, store: FaultyStore, refusals: int | None
) -> None:
    """They were told as if nothing had been written; a flush that had been recorded was then made anew for ever."""
    manifests.create(REGION)
    store.lose_reply("put_if_absent")
    store.add(Rule(_refuse, Moment.BEFORE, frozenset(["put_if_absent"]), nth=2, times=refusals))
    if refusals is None:
        with pytest.raises(CommitUnknownError):
            manifests.update(REGION, _raise_to(3))
        store.heal()
    else:
        assert manifests.update(REGION, _raise_to(3)).version == 2
    assert manifests.load(REGION).wal_id_last_seen == 3


def test_a_refusal_before_any_write_is_told_as_one(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.add(Rule(_refuse, Moment.BEFORE, frozenset(["put_if_absent"])))
    with pytest.raises(StoreRefusedError):
        manifests.update(REGION, _raise_to(3))
    assert manifests.versions(REGION) == [1]


def test_unavailable_store_fails_a_load(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.fail("get", times=None)
    with pytest.raises(UnavailableError):
        manifests.load(REGION)


@pytest.mark.req("FMT-44", "FMT-28")
def test_foreign_fields_survive_an_update(manifests: ManifestStore, store: FaultyStore) -> None:
    record = FlushedGeneration(1, "abc123_gen_1", unknown=bytes.fromhex("2818"))
    first = RegionManifest(
        region_id=REGION, current_generation=2, flushed_generations=(record,), unknown=bytes.fromhex("3809") + FIELD_99
    )
    store.put(manifest_path(REGION, 1), encode_manifest(first))
    manifests.update(REGION, _raise_to(3))
    rewritten = decode_manifest(store.get(manifest_path(REGION, 2)), region_id=REGION, version=2)
    assert rewritten.unknown == bytes.fromhex("3809") + FIELD_99
    assert rewritten.flushed_generations == (record,)


@pytest.mark.req("MAN-25")
def test_three_flushes_raise_the_current_generation_to_four(manifests: ManifestStore) -> None:
    manifests.create(REGION)
    for generation in (1, 2, 3):
        record = FlushedGeneration(generation, f"aa_gen_{generation}")
        manifests.update(REGION, lambda stored, record=record: record_flush(stored, record, record.generation * 10, 0))
    loaded = manifests.load(REGION)
    assert loaded.current_generation == 4
    assert [entry.generation for entry in loaded.flushed_generations] == [1, 2, 3]
    assert loaded.replay_after_wal_id == 30


def test_regions_are_loaded_in_the_order_asked_for(manifests: ManifestStore) -> None:
    ids = IdSource(seeded_rng(5))
    regions = [ids.region_id() for _ in range(20)]
    for region_id in regions:
        manifests.create(region_id)
    assert [manifest.region_id for manifest in manifests.load_many(regions, 4)] == regions
    assert manifests.region_ids() == sorted(regions)


def test_region_without_a_manifest_is_left_out(manifests: ManifestStore) -> None:
    manifests.create(REGION)
    assert [manifest.region_id for manifest in manifests.load_many([OTHER, REGION])] == [REGION]


def test_damaged_region_fails_the_load_of_many(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    store.put(manifest_path(OTHER, 1), b"\xff")
    with pytest.raises(CorruptionError):
        manifests.load_many([REGION, OTHER])


@pytest.mark.req("LEASE-03")
def test_directories_that_are_no_regions_are_skipped_with_a_warning(
    manifests: ManifestStore, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    manifests.create(REGION)
    for name in ("_leases/merge", "_regions/1", "lost+found", str(OTHER).upper().replace("1", "A"), OTHER.hex):
        store.put(f"_mem_wal/{name}/x", b"")
    with caplog.at_level(logging.WARNING):
        assert manifests.region_ids() == [REGION]
    warned = " ".join(caplog.messages)
    assert "lost+found" in warned
    assert OTHER.hex in warned
    assert "_leases" not in warned
    assert "_regions" not in warned


@pytest.mark.req("GC-12", "GC-13")
def test_old_versions_can_be_deleted_and_the_newest_stays(manifests: ManifestStore, store: FaultyStore) -> None:
    manifests.create(REGION)
    for wal_id in range(1, 6):
        manifests.update(REGION, _raise_to(wal_id))
    assert manifests.delete_versions_before(REGION, 5) == [1, 2, 3, 4]
    assert manifests.versions(REGION) == [5, 6]
    assert {info.path for info in store.list_objects(manifest_directory(REGION))} == {
        manifest_path(REGION, 5),
        manifest_path(REGION, 6),
        HINT,
    }
    assert manifests.update(REGION, _raise_to(9)).version == 7

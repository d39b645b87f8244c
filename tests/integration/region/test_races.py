"""Threads with a manifest store each, as processes would have, on real stores."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memwal_core.errors import ConflictError
from memwal_core.format.paths import VERSION_HINT_NAME, manifest_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import FlushedGeneration, ManifestStore, claim, drain, raise_wal_hint, record_flush
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, open_store
from testkit.faults.faulty_store import FaultyStore
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
THREADS = 6
SETTINGS = StorageSettings(fsync=False, retry_wait_s=0.001)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "table") if request.param == "local" else "memory:///races", settings=SETTINGS)


def _process(store: ObjectStore, seed: int) -> ManifestStore:
    return ManifestStore(store, IdSource(seeded_rng(seed)), settings=SETTINGS, rng=seeded_rng(seed))


def _race(work: Callable[[int], object]) -> list:
    barrier = threading.Barrier(THREADS)

    def run(seed: int) -> object:
        barrier.wait()
        return work(seed)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.req("MAN-04", "MAN-02")
def test_one_of_many_equal_commits_wins(store: ObjectStore) -> None:
    stored = _process(store, 99).create(REGION)

    def commit(seed: int) -> bytes | None:
        try:
            return _process(store, seed).commit(stored, raise_wal_hint(stored, 3)).commit_id
        except ConflictError:
            return None

    winners = [commit_id for commit_id in _race(commit) if commit_id is not None]
    assert len(winners) == 1
    assert _process(store, 99).load(REGION).commit_id == winners[0]


@pytest.mark.req("MAN-30", "MAN-04")
def test_one_of_many_equal_creations_wins(store: ObjectStore) -> None:
    def create(seed: int) -> bytes | None:
        try:
            return _process(store, seed).create(REGION).commit_id
        except ConflictError:
            return None

    winners = [commit_id for commit_id in _race(create) if commit_id is not None]
    assert len(winners) == 1


@pytest.mark.req("MAN-05", "MAN-22", "WRT-16")
def test_racing_claims_get_distinct_consecutive_epochs(store: ObjectStore) -> None:
    _process(store, 99).create(REGION)
    epochs = _race(lambda seed: claim(_process(store, seed), REGION).writer_epoch)
    assert sorted(epochs) == list(range(1, THREADS + 1))


@pytest.mark.req("MAN-05", "MAN-28")
def test_racing_triggers_all_take_effect(store: ObjectStore) -> None:
    manifests = _process(store, 99)
    manifests.create(REGION)
    record = FlushedGeneration(1, "aa_gen_1")
    manifests.update(REGION, lambda stored: record_flush(stored, record, 4, 4))
    second = FlushedGeneration(2, "bb_gen_2")
    triggers = [
        lambda stored: drain(stored, {1}),
        lambda stored: raise_wal_hint(stored, 70),
        lambda stored: record_flush(stored, second, 9, 9),
    ]

    def run(seed: int) -> object:
        if seed >= len(triggers):
            return claim(_process(store, seed), REGION)
        return _process(store, seed).update(REGION, triggers[seed])

    _race(run)
    final = manifests.load(REGION)
    assert final.flushed_generations == (second,)
    assert (final.replay_after_wal_id, final.wal_id_last_seen, final.current_generation) == (9, 70, 3)
    assert (final.version, final.writer_epoch) == (2 + THREADS, THREADS - len(triggers))


@pytest.mark.req("MAN-14", "MAN-13")
def test_reads_during_commits_and_deletions_never_go_back(store: ObjectStore) -> None:
    faulty, deleting = FaultyStore(store), threading.Event()
    manifests = _process(faulty, 99)
    manifests.create(REGION)
    # From now on only deletions move the hint, so that readers have to find what was committed since.
    faulty.fail("put", path=lambda path: path.endswith(VERSION_HINT_NAME) and not deleting.is_set(), times=None)
    committed = [1]
    done = threading.Event()

    def write() -> None:
        try:
            for wal_id in range(1, 51):
                committed[0] = manifests.update(
                    REGION, lambda stored, wal_id=wal_id: raise_wal_hint(stored, wal_id)
                ).version
                if wal_id % 10 == 0:
                    deleting.set()
                    manifests.delete_versions_before(REGION, committed[0] - 3)
                    deleting.clear()
        finally:
            done.set()

    def read(seed: int) -> int:
        reader = _process(store, seed)
        reads = 0
        while not done.is_set() or reads == 0:
            at_least = committed[0]
            assert reader.load(REGION).version >= at_least
            reads += 1
        return reads

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, seed) for seed in range(3)]
        pool.submit(write).result()
        assert all(reader.result() > 0 for reader in readers)
    assert manifests.load(REGION).version == 51
    with pytest.raises(ConflictError):
        manifests.create(REGION)
    assert store.head(manifest_path(REGION, 1)) is None

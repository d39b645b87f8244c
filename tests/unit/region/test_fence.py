import uuid

import pytest

from memwal_core.errors import ConflictError, CorruptionError, FencedError, ObjectNotFoundError
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import ManifestStore, RegionManifest, check_epoch, claim, raise_wal_hint
from memwal_core.region.invariants import changed_fields
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory:///fence"))


def _process(store: FaultyStore, seed: int) -> ManifestStore:
    """Return the manifest store of one process among several."""
    return ManifestStore(store, IdSource(seeded_rng(seed)), clock=ManualClock(), rng=seeded_rng(seed))


def _at_epoch(epoch: int) -> RegionManifest:
    return RegionManifest(region_id=REGION, writer_epoch=epoch)


@pytest.mark.req("WRT-76")
def test_writer_with_the_stored_epoch_goes_on() -> None:
    check_epoch(4, _at_epoch(4))


@pytest.mark.req("WRT-76")
def test_writer_with_a_lower_epoch_is_fenced() -> None:
    with pytest.raises(FencedError) as caught:
        check_epoch(3, _at_epoch(4))
    assert (caught.value.facts["writer_epoch"], caught.value.facts["stored_epoch"]) == (3, 4)


@pytest.mark.req("WRT-77")
def test_stored_epoch_below_the_granted_one_is_corruption() -> None:
    with pytest.raises(CorruptionError):
        check_epoch(5, _at_epoch(4))


@pytest.mark.req("MAN-16", "MAN-22", "WRT-14", "WRT-15")
def test_claim_loads_the_newest_and_writes_the_next_version(store: FaultyStore) -> None:
    manifests = _process(store, 1)
    manifests.create(REGION)
    newest = claim(_process(store, 2), REGION)
    store.calls.clear()
    claimed = claim(manifests, REGION)
    assert (newest.version, claimed.version, claimed.writer_epoch) == (2, 3, 2)
    assert changed_fields(claimed, newest) == {"writer_epoch"}
    operations = [call.operation for call in store.calls]
    assert operations.index("get") < operations.index("put_if_absent")


def test_claim_expects_the_epoch_that_its_caller_looked_at(store: FaultyStore) -> None:
    manifests = _process(store, 1)
    manifests.create(REGION)
    claim(manifests, REGION)

    with pytest.raises(ConflictError, match="claimed the region first") as caught:
        claim(manifests, REGION, expected_epoch=0)
    assert (caught.value.facts["expected_epoch"], caught.value.facts["found_epoch"]) == (0, 1)
    assert manifests.load(REGION).writer_epoch == 1

    assert claim(manifests, REGION, expected_epoch=1).writer_epoch == 2


def test_claim_of_a_missing_region_is_not_found(store: FaultyStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        claim(_process(store, 1), REGION)


@pytest.mark.req("MAN-05", "WRT-16")
def test_claim_that_loses_the_race_takes_the_next_epoch(store: FaultyStore) -> None:
    first, second = _process(store, 1), _process(store, 2)
    first.create(REGION)
    for _ in range(5):
        claim(first, REGION)
    rival = []
    store.add(Rule(lambda _: rival.append(claim(second, REGION)), Moment.BEFORE, frozenset({"put_if_absent"})))
    claimed = claim(first, REGION)
    assert (rival[0].writer_epoch, claimed.writer_epoch) == (6, 7)
    assert first.load(REGION).writer_epoch == 7


@pytest.mark.req("WRT-15", "WRT-16")
def test_claim_whose_reply_was_lost_is_recognised_and_not_repeated(store: FaultyStore) -> None:
    manifests = _process(store, 1)
    manifests.create(REGION)
    store.lose_reply("put_if_absent")
    claimed = claim(manifests, REGION)
    assert (claimed.version, claimed.writer_epoch) == (2, 1)
    assert manifests.load(REGION) == claimed


@pytest.mark.req("WRT-16")
def test_equal_claim_of_a_rival_is_not_taken_for_our_lost_reply(store: FaultyStore) -> None:
    first, second = _process(store, 1), _process(store, 2)
    first.create(REGION)
    rival = []
    # The rival writes what we are about to write; then our own put gets no reply.
    store.add(Rule(lambda _: rival.append(claim(second, REGION)), Moment.BEFORE, frozenset({"put_if_absent"})))
    store.fail("put_if_absent", nth=2)
    claimed = claim(first, REGION)
    assert (rival[0].writer_epoch, claimed.writer_epoch) == (1, 2)


@pytest.mark.req("MAN-29", "WRT-76", "WRT-78")
def test_claim_between_check_and_commit_fences_the_writer(store: FaultyStore) -> None:
    writer, rival = _process(store, 1), _process(store, 2)
    writer.create(REGION)
    epoch = claim(writer, REGION).writer_epoch
    checks = []

    def check(stored: RegionManifest) -> None:
        checks.append(stored.version)
        check_epoch(epoch, stored)

    store.add(Rule(lambda _: claim(rival, REGION), Moment.BEFORE, frozenset({"put_if_absent"})))
    with pytest.raises(FencedError):
        writer.update(REGION, lambda stored: raise_wal_hint(stored, 5), check=check)
    assert checks == [2, 3]
    assert writer.load(REGION).wal_id_last_seen == 0


@pytest.mark.req("WRT-78")
def test_commit_based_on_a_version_before_a_claim_conflicts(store: FaultyStore) -> None:
    writer, rival = _process(store, 1), _process(store, 2)
    writer.create(REGION)
    stored = claim(writer, REGION)
    check_epoch(1, stored)
    claim(rival, REGION)
    with pytest.raises(ConflictError):
        writer.commit(stored, raise_wal_hint(stored, 5))


@pytest.mark.req("MAN-28", "MAN-29")
def test_conflict_with_a_background_job_leaves_the_writer_in_place(store: FaultyStore) -> None:
    writer, job = _process(store, 1), _process(store, 2)
    writer.create(REGION)
    epoch = claim(writer, REGION).writer_epoch
    store.add(
        Rule(
            lambda _: job.update(REGION, lambda stored: raise_wal_hint(stored, 9)),
            Moment.BEFORE,
            frozenset({"put_if_absent"}),
        )
    )
    written = writer.update(
        REGION, lambda stored: raise_wal_hint(stored, 12), check=lambda stored: check_epoch(epoch, stored)
    )
    assert (written.version, written.writer_epoch, written.wal_id_last_seen) == (4, epoch, 12)

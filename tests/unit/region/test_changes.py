import uuid
from dataclasses import replace

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration, RegionManifest, claim_epoch, drain, raise_wal_hint, record_flush
from memwal_core.region.invariants import changed_fields

STORED = RegionManifest(
    region_id=RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff")),
    version=8,
    writer_epoch=4,
    replay_after_wal_id=20,
    wal_id_last_seen=25,
    current_generation=3,
    flushed_generations=(FlushedGeneration(1, "aa_gen_1", unknown=b"\x28\x05"), FlushedGeneration(2, "bb_gen_2")),
    unknown=b"\x98\x06\x07",
)
THIRD = FlushedGeneration(3, "cc_gen_3", in_memory_bytes=10, physical_rows=2)


@pytest.mark.req("MAN-16", "MAN-22", "WRT-15")
def test_claim_raises_the_epoch_by_one_and_nothing_else() -> None:
    claimed = claim_epoch(STORED)
    assert claimed.writer_epoch == 5
    assert changed_fields(claimed, STORED) == {"writer_epoch"}


@pytest.mark.req("MAN-17", "MAN-25")
def test_flush_changes_its_four_fields_together() -> None:
    flushed = record_flush(STORED, THIRD, 24, 26)
    assert flushed is not None
    assert changed_fields(flushed, STORED) == {
        "replay_after_wal_id",
        "wal_id_last_seen",
        "current_generation",
        "flushed_generations",
    }
    assert (flushed.replay_after_wal_id, flushed.wal_id_last_seen, flushed.current_generation) == (24, 26, 4)
    assert flushed.flushed_generations == (*STORED.flushed_generations, THIRD)


def test_flush_never_lowers_the_hint() -> None:
    assert record_flush(STORED, THIRD, 22, 22).wal_id_last_seen == 25
    assert record_flush(STORED, THIRD, 30, 28).wal_id_last_seen == 30


def test_flush_recorded_before_has_nothing_to_do() -> None:
    once = record_flush(STORED, THIRD, 24, 26)
    assert record_flush(once, THIRD, 24, 26) is None


@pytest.mark.req("MAN-25")
@pytest.mark.parametrize(
    "record", [FlushedGeneration(4, "dd_gen_4"), FlushedGeneration(2, "xx_gen_2"), FlushedGeneration(1, "bb_gen_2")]
)
def test_flush_of_another_generation_is_refused(record: FlushedGeneration) -> None:
    with pytest.raises(InvalidRequestError):
        record_flush(STORED, record, 24, 26)


@pytest.mark.req("MAN-23")
def test_flush_that_lowers_the_replay_pointer_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        record_flush(STORED, THIRD, 19, 26)


@pytest.mark.req("MAN-18")
def test_hint_only_rises() -> None:
    raised = raise_wal_hint(STORED, 26)
    assert raised == replace(STORED, wal_id_last_seen=26)
    assert raise_wal_hint(STORED, 25) is None
    assert raise_wal_hint(STORED, 3) is None


@pytest.mark.req("MAN-19", "GC-25")
def test_drain_removes_the_named_records_and_nothing_else() -> None:
    drained = drain(STORED, {1, 77})
    assert drained == replace(STORED, flushed_generations=STORED.flushed_generations[1:])
    assert drain(STORED, {5}) is None
    assert drain(STORED, ()) is None

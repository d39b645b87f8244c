import uuid
from dataclasses import replace

import pytest

from memwal_core.format.region_manifest.model import (
    BASE_TABLE_GENERATION,
    FIRST_GENERATION,
    FlushedGeneration,
    RegionManifest,
    RegionStatus,
)
from memwal_core.ids import RegionId
from memwal_core.region.invariants import manifest_violations, transition_violations

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
OLD = RegionManifest(
    region_id=REGION,
    version=8,
    region_spec_id=1,
    region_field_values={"f": b"1"},
    writer_epoch=4,
    replay_after_wal_id=20,
    wal_id_last_seen=25,
    current_generation=3,
    flushed_generations=(FlushedGeneration(1, "aa_gen_1"), FlushedGeneration(2, "bb_gen_2")),
)
NEW = replace(OLD, version=9)
THIRD = FlushedGeneration(3, "cc_gen_3")


def _rules(found: list) -> set[str]:
    return {violation.rule for violation in found}


@pytest.mark.req("FMT-46")
def test_generation_numbers_are_those_of_the_format() -> None:
    assert (FIRST_GENERATION, BASE_TABLE_GENERATION) == (1, -1)


def test_sound_manifest_breaks_no_rule() -> None:
    assert manifest_violations(OLD) == []


@pytest.mark.req("MAN-26", "FMT-46")
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 0}, "counters_fit"),
        ({"writer_epoch": -1}, "counters_fit"),
        ({"wal_id_last_seen": 2**64}, "counters_fit"),
        ({"replay_after_wal_id": 2**64 - 1}, "counters_fit"),
        ({"current_generation": 0, "flushed_generations": ()}, "generations_start_at_one"),
        ({"flushed_generations": (FlushedGeneration(0, "aa_gen_0"),)}, "generations_start_at_one"),
        ({"flushed_generations": OLD.flushed_generations[::-1]}, "generations_ascend"),
        ({"flushed_generations": (FlushedGeneration(1, "a"), FlushedGeneration(1, "b"))}, "generations_ascend"),
        ({"flushed_generations": (THIRD,)}, "generations_are_flushed"),
        ({"flushed_generations": (FlushedGeneration(1, "a"), FlushedGeneration(2, "a"))}, "paths_are_unique"),
        ({"flushed_generations": (FlushedGeneration(1, "../x"),)}, "paths_stay_inside"),
    ],
)
def test_broken_manifest_names_its_rule(change: dict, rule: str) -> None:
    assert _rules(manifest_violations(replace(OLD, **change))) == {rule}


@pytest.mark.req("MAN-16", "MAN-17", "MAN-18", "MAN-19", "MAN-21")
@pytest.mark.parametrize(
    "change",
    [
        {"writer_epoch": 5},
        {"wal_id_last_seen": 26},
        {"flushed_generations": OLD.flushed_generations[1:]},
        {"flushed_generations": ()},
        {
            "replay_after_wal_id": 25,
            "wal_id_last_seen": 26,
            "current_generation": 4,
            "flushed_generations": (*OLD.flushed_generations, THIRD),
        },
    ],
)
def test_change_of_one_trigger_breaks_no_rule(change: dict) -> None:
    assert transition_violations(replace(NEW, **change), OLD) == []


@pytest.mark.req("MAN-03", "MAN-17", "MAN-20", "MAN-21", "MAN-22", "MAN-23", "MAN-25", "G-12")
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 8}, "version_is_next"),
        ({"version": 10}, "version_is_next"),
        ({"region_spec_id": 2}, "identity_stays"),
        ({"region_field_values": {"f": b"2"}}, "identity_stays"),
        ({"status": RegionStatus.SEALED}, "identity_stays"),
        ({"unknown": b"\x98\x06\x07"}, "identity_stays"),
        ({"writer_epoch": 3}, "epoch_grows_by_claims"),
        ({"writer_epoch": 6}, "epoch_grows_by_claims"),
        ({"replay_after_wal_id": 19}, "wal_positions_never_fall"),
        ({"wal_id_last_seen": 24}, "wal_positions_never_fall"),
        ({"replay_after_wal_id": 21}, "replay_moves_with_flushes"),
        ({"current_generation": 4}, "flushes_follow_each_other"),
        ({"current_generation": 2}, "flushes_follow_each_other"),
        ({"flushed_generations": (*OLD.flushed_generations, THIRD)}, "flushes_follow_each_other"),
        (
            {
                "current_generation": 5,
                "flushed_generations": (*OLD.flushed_generations, THIRD, replace(THIRD, generation=4)),
            },
            "flushes_follow_each_other",
        ),
        ({"flushed_generations": (FlushedGeneration(1, "zz_gen_1"), OLD.flushed_generations[1])}, "records_stay"),
        ({"current_generation": 4, "flushed_generations": (THIRD,)}, "flushes_remove_nothing"),
        ({"writer_epoch": 5, "wal_id_last_seen": 26}, "one_kind_of_change"),
        ({"writer_epoch": 5, "flushed_generations": ()}, "one_kind_of_change"),
    ],
)
def test_forbidden_change_names_its_rule(change: dict, rule: str) -> None:
    assert rule in _rules(transition_violations(replace(NEW, **change), OLD))

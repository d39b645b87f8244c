"""The status of a table, derived from what was read."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memwal_core.base_table import PrimaryKey, TableState
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.observe.lifecycle import GenerationState
from memwal_core.observe.status import WalTail, count_states, derive_status, find_wal_tail
from memwal_core.region import FlushedGeneration, RegionManifest, RegionStatus
from memwal_core.region.spec import bucket_spec, encode_region_value
from memwal_core.storage import open_store

REGION = RegionId(uuid.UUID(int=5, version=4))
SPEC = bucket_spec(1, "id", {"id": 0}, 4)


def state(merged: dict[RegionId, int]) -> TableState:
    return TableState(
        version=9,
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]),
        field_ids={"id": 0},
        primary_key=PrimaryKey(("id",), (0,)),
        details=MemWalIndexDetails(region_specs=(SPEC,), merged_generations=merged),
        entry=None,
        data_storage_version="2.2",
        num_rows=100,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )


def manifest(**changes) -> RegionManifest:
    values = {
        "region_id": REGION,
        "version": 12,
        "region_spec_id": 1,
        "region_field_values": encode_region_value(SPEC, (3,)),
        "writer_epoch": 4,
        "replay_after_wal_id": 20,
        "wal_id_last_seen": 22,
        "current_generation": 6,
        "flushed_generations": (FlushedGeneration(4, "a_gen_4", 10, 1), FlushedGeneration(5, "a_gen_5", 30, 1)),
        "status": RegionStatus.SEALED,
    }
    return RegionManifest(**(values | changes))


@pytest.mark.req("LEG-13")
def test_region_shows_lags_states_value_and_codec():
    status = derive_status("/t", state({REGION: 4}), [manifest()], [WalTail(25, False, ".lance")])
    (region,) = status.regions
    assert region.wal_lag == 5
    assert (region.merge_lag_generations, region.merge_lag_bytes) == (1, 30)
    assert count_states(region) == {
        GenerationState.OPEN: 1,
        GenerationState.SEALED: 0,
        GenerationState.FLUSHED: 1,
        GenerationState.MERGED: 4,
    }
    assert region.value == {"bucket(id, 4)": "3"}
    assert (region.codec, region.sealed_for_lance, region.writer_epoch) == ("lance", True, 4)
    assert (status.merge_lag_generations, status.merge_lag_bytes) == (1, 30)


def test_document_is_json():
    status = derive_status("/t", state({}), [manifest()], [WalTail(25, True, ".arrow")])
    document = json.loads(json.dumps(status.to_dict()))
    assert document["regions"][0]["codec"] == "arrow"
    assert document["regions"][0]["wal_tail_is_lower_bound"] is True
    assert document["regions"][0]["generations"][0] == {"first": 1, "last": 3, "state": None}
    assert document["num_rows"] == 100


def test_value_that_does_not_decode_is_shown_as_bytes():
    broken = manifest(region_field_values={SPEC.fields[0].field_id: b"\x01\x02\x03"})
    (region,) = derive_status("/t", state({}), [broken], [WalTail(25, False, None)]).regions
    assert region.value == {SPEC.fields[0].field_id: "010203"}


@pytest.mark.parametrize(("status", "codec"), [(RegionStatus.SEALED, "lance"), (RegionStatus.ACTIVE, None)])
def test_codec_of_a_region_without_wal_follows_its_seal(status, codec):
    (region,) = derive_status("/t", state({}), [manifest(status=status)], [WalTail(0, False, None)]).regions
    assert region.codec == codec


@pytest.mark.parametrize(
    ("present", "probes", "expected"),
    [
        ([22, 23, 24], 8, WalTail(24, False, ".arrow")),
        ([23], 8, WalTail(23, False, ".arrow")),
        ([22, 23, 24, 25], 2, WalTail(24, True, ".arrow")),
        ([], 8, WalTail(22, False, None)),
        ([22, 24], 8, WalTail(22, False, ".arrow", has_hole=True)),
        ([24], 8, WalTail(22, False, ".arrow", has_hole=True)),
    ],
)
def test_tail_is_found_by_a_bounded_number_of_probes(present, probes, expected):
    store = open_store("memory://")
    for wal_id in present:
        store.put_if_absent(wal_entry_path(REGION, wal_id, ".arrow"), IdSource().commit_id())
    assert find_wal_tail(store, manifest(), probes) == expected

"""Stored bytes of index details, as pylance 14 and this project wrote them; they must read for ever."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import LegacyIndexError, decode_details, encode_details
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec

# initialize_mem_wal(bucket_column="id", num_buckets=4) of pylance 14.0.2, which sets field 12.
PYLANCE_14 = bytes.fromhex(
    "10043a300801122c0a066275636b65741201001a066275636b65742a05696e74333232100a0b6e756d5f6275636b6574731201346001"
)
OURS = bytes.fromhex(
    "0898b4c3df9f3410021a0a6c616e63652066696c653a300801122c0a066275636b65741201001a066275636b65742a05"
    "696e74333232100a0b6e756d5f6275636b6574731201343a210802121d0a0364617912020102220b636f6c30202f2063"
    "6f6c312a05696e74363442077665635f6964784208746578745f6964784a160a120a100a000000000040008000000000"
    "00000110034a160a120a100b000000000040008000000000000002100152390a077665635f69647812160a120a100a00"
    "0000000040008000000000000001100312160a120a100b000000000040008000000000000002100152220a0874657874"
    "5f69647812160a120a100a00000000004000800000000000000110029a0603616263"
)
# The early layout, whose field 1 is a list of messages: one entry that names the owner "orders".
LEGACY = bytes.fromhex("0a0a0a080a066f7264657273")
A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))


@pytest.mark.req("FMT-33", "FMT-36", "FMT-42", "FMT-44")
def test_details_that_pylance_14_wrote_read_and_write_unchanged() -> None:
    details = decode_details(PYLANCE_14)

    field = RegionField("bucket", (0,), "bucket", None, "int32", {"num_buckets": "4"})
    assert details == MemWalIndexDetails(num_regions=4, region_specs=(RegionSpec(1, (field,)),), unknown=b"\x60\x01")
    assert encode_details(details) == PYLANCE_14
    assert encode_details(replace(details, num_regions=5)) == PYLANCE_14.replace(b"\x10\x04", b"\x10\x05", 1)


@pytest.mark.req(
    "FMT-33", "FMT-34", "FMT-35", "FMT-36", "FMT-37", "FMT-38", "FMT-39", "FMT-40", "FMT-41", "FMT-42", "FMT-44"
)
def test_details_that_this_project_wrote_read_and_write_unchanged() -> None:
    details = MemWalIndexDetails(
        snapshot_ts_millis=1_795_228_228_120,
        num_regions=2,
        inline_snapshots=b"lance file",
        region_specs=(
            RegionSpec(1, (RegionField("bucket", (0,), "bucket", parameters={"num_buckets": "4"}),)),
            RegionSpec(2, (RegionField("day", (1, 2), None, "col0 / col1", "int64"),)),
        ),
        maintained_indexes=("vec_idx", "text_idx"),
        merged_generations={A: 3, B: 1},
        index_catchup={"vec_idx": {A: 3, B: 1}, "text_idx": {A: 2}},
        unknown=b"\x9a\x06\x03abc",
    )

    assert decode_details(OURS) == details
    assert encode_details(details) == OURS


@pytest.mark.req("LEG-06", "LEG-07")
def test_details_of_the_early_layout_are_refused() -> None:
    with pytest.raises(LegacyIndexError):
        decode_details(LEGACY)

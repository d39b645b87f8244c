"""Stored bytes of index details, as pylance 14 and this project wrote them; they must read for ever."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from memwal_core.ids import RegionId
from memwal_core.index import MemWalIndexDetails
from memwal_core.index.codec import LegacyIndexError, decode_details, encode_details
from memwal_core.region_spec import RegionField, RegionSpec

# initialize_mem_wal(bucket_column="id", num_buckets=4) of pylance 14.0.2, which sets field 12.
PYLANCE_14 = bytes.fromhex(
    "10043a300801122c0a066275636b657412010" + "01a066275636b65742a05696e74333232100a0b6e756d5f6275636b657473120134" + "6001"
)
OURS = bytes.fromhex(
    "08b8f0b5f69f341002"
    "1a0d4c616e63652066696c65203a29"
    "3a080801120412001a00"
    "42077665635f696478"
    "4a160a120a100a00000000004000800000000000000110034a160a120a100b00000000004000800000000000000210015229"
    "0a077665635f696478121e0a120a100a0000000000400080000000000000011003"
)
# The early layout, whose field 1 is a list of messages: one entry that names the owner "orders".
LEGACY = bytes.fromhex("0a0a0a080a066f7264657273")
A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))


@pytest.mark.req("FMT-33", "FMT-36", "FMT-42", "FMT-44")
def test_details_that_pylance_14_wrote_read_and_write_unchanged() -> None:
    details = decode_details(PYLANCE_14)

    field = RegionField("bucket", (0,), "bucket", None, "int32", {"num_buckets": "4"})
    assert details == MemWalIndexDetails(num_regions=4, region_specs=(RegionSpec(1, (field,)),), unknown=b"\x60\x01")
    assert encode_details(details) == PYLANCE_14
    assert encode_details(replace(details, num_regions=5)) == PYLANCE_14.replace(b"\x10\x04", b"\x10\x05", 1)


@pytest.mark.req("LEG-06", "LEG-07")
def test_details_of_the_early_layout_are_refused() -> None:
    with pytest.raises(LegacyIndexError):
        decode_details(LEGACY)

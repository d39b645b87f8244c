"""Index details over random contents and histories."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import decode_details, encode_details
from memwal_core.format.memwal_index.rules import caught_up_generation, check_any_commit, check_commit_without_rows
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec

REGIONS = [RegionId(uuid.UUID(int=number)) for number in range(1, 4)]
NAMES = ["vec", "text"]

progress = st.dictionaries(st.sampled_from(REGIONS), st.integers(0, 2**64 - 1), max_size=3)
fields = st.builds(
    RegionField,
    field_id=st.text(max_size=4),
    source_ids=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(tuple),
    transform=st.none() | st.sampled_from(["bucket", "identity", ""]),
    expression=st.none() | st.text(max_size=4),
    result_type=st.sampled_from(["int32", "utf8", ""]),
    parameters=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
details_strategy = st.builds(
    MemWalIndexDetails,
    snapshot_ts_millis=st.integers(-(2**63), 2**63 - 1),
    num_regions=st.integers(0, 2**32 - 1),
    inline_snapshots=st.none() | st.binary(max_size=8),
    region_specs=st.lists(
        st.builds(RegionSpec, spec_id=st.integers(0, 2**32 - 1), fields=st.lists(fields, max_size=2).map(tuple)),
        max_size=3,
    ).map(tuple),
    maintained_indexes=st.lists(st.text(max_size=4), max_size=3).map(tuple),
    merged_generations=progress,
    index_catchup=st.dictionaries(st.sampled_from(NAMES), progress, max_size=2),
    unknown=st.sampled_from([b"", b"\x60\x01", b"\x9a\x06\x03abc"]),
)


@pytest.mark.req("FMT-44", "IDX-02")
@settings(derandomize=True, deadline=None)
@given(details_strategy, details_strategy)
def test_any_details_survive_the_wire_alone_and_as_a_change_of_others(
    one: MemWalIndexDetails, other: MemWalIndexDetails
) -> None:
    payload = encode_details(one)

    assert decode_details(payload) == one
    changed = decode_details(encode_details(other, base=payload))
    assert changed == replace(other, unknown=one.unknown)


small = st.dictionaries(st.sampled_from(REGIONS), st.integers(0, 4), max_size=3)
change = st.tuples(st.booleans(), small, st.dictionaries(st.sampled_from(NAMES), small, max_size=2))


@pytest.mark.req("IDX-28", "IDX-27", "CAT-08", "MRG-20")
@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(change, max_size=12))
def test_over_any_history_of_accepted_commits_progress_only_grows(history: list[tuple[bool, dict, dict]]) -> None:
    accepted = [MemWalIndexDetails()]
    for brings_rows, merged, catchup in history:
        now = accepted[-1]
        wanted = replace(now, merged_generations={**now.merged_generations, **merged}, index_catchup=catchup)
        try:
            (check_any_commit if brings_rows else check_commit_without_rows)(now, wanted)
        except InvalidRequestError:
            continue
        accepted.append(wanted)
        for region in REGIONS:
            assert wanted.merged_generation(region) >= now.merged_generation(region)
            assert brings_rows or wanted.merged_generation(region) == now.merged_generation(region)
            for name in NAMES:
                caught_up = caught_up_generation(wanted, [name], region)
                assert caught_up <= wanted.merged_generation(region)
                assert name not in catchup or caught_up >= caught_up_generation(now, [name], region)

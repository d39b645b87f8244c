"""Changes of specs and maintained indexes keep everything else."""

from __future__ import annotations

import uuid
from dataclasses import fields, replace

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.configure import (
    check_maintained_indexes,
    with_maintained_index,
    with_region_spec,
    without_maintained_index,
)
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionSpec

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
DETAILS = MemWalIndexDetails(
    snapshot_ts_millis=7,
    num_regions=1,
    inline_snapshots=b"x",
    region_specs=(RegionSpec(1, ()),),
    maintained_indexes=("vec",),
    merged_generations={A: 3},
    index_catchup={"vec": {A: 3}, "text": {A: 2}},
    unknown=b"\x60\x01",
)


def _differing(one: MemWalIndexDetails, other: MemWalIndexDetails) -> set[str]:
    return {f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)}


@pytest.mark.req("IDX-41")
def test_added_spec_changes_nothing_else() -> None:
    changed = with_region_spec(DETAILS, RegionSpec(2, ()))

    assert [spec.spec_id for spec in changed.region_specs] == [1, 2]
    assert _differing(changed, DETAILS) == {"region_specs"}


def test_spec_with_a_taken_id_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="taken"):
        with_region_spec(DETAILS, RegionSpec(1, ()))


@pytest.mark.req("IDX-41")
def test_added_maintained_index_changes_nothing_else() -> None:
    changed = with_maintained_index(DETAILS, "text")

    assert changed.maintained_indexes == ("vec", "text")
    assert _differing(changed, DETAILS) == {"maintained_indexes"}
    assert with_maintained_index(changed, "text") is changed


@pytest.mark.req("IDX-41")
def test_removed_maintained_index_takes_only_its_own_catchup_along() -> None:
    changed = without_maintained_index(DETAILS, "vec")

    assert changed == replace(DETAILS, maintained_indexes=(), index_catchup={"text": {A: 2}})


def test_removing_an_unlisted_index_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not maintained"):
        without_maintained_index(DETAILS, "text")


@pytest.mark.req("IDX-34", "IDX-35")
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["absent"], "no such index"),
        (["__lance_mem_wal"], "no such index"),
        (["id_idx"], "must not be listed"),
        (["vec", "vec"], "twice"),
    ],
)
def test_unknown_internal_key_or_repeated_index_is_refused(names: list[str], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        check_maintained_indexes(names, existing=["vec", "id_idx", "__lance_mem_wal"], key_indexes=["id_idx"])


@pytest.mark.req("IDX-34")
def test_existing_index_may_be_maintained() -> None:
    check_maintained_indexes(["vec"], existing=["vec", "id_idx"], key_indexes=["id_idx"])

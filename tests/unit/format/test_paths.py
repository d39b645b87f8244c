import re
import uuid

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format import paths as layout
from memwal_core.ids import IdSource, RegionId
from testkit.rng import seeded_rng

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
ROOT = f"_mem_wal/{REGION}"


@pytest.mark.req("FMT-05", "FMT-06")
@pytest.mark.parametrize(
    ("number", "digits"),
    [(1, "1" + "0" * 63), (2, "01" + "0" * 62), (5, "101" + "0" * 61), (2**63, "0" * 63 + "1"), (2**64 - 1, "1" * 64)],
)
def test_number_is_named_by_its_bits_lowest_first(number: int, digits: str) -> None:
    assert layout.bit_reversed(number) == digits
    assert layout.parse_bit_reversed(digits) == number
    assert layout.wal_entry_name(number, ".lance") == digits + ".lance"
    assert layout.manifest_path(REGION, number) == f"{ROOT}/manifest/{digits}.binpb"


@pytest.mark.req("FMT-08")
def test_first_ten_characters_of_1024_ids_take_all_values_once() -> None:
    assert len({layout.bit_reversed(number)[:10] for number in range(1, 1025)}) == 1024


@pytest.mark.req("FMT-07", "FMT-11")
@pytest.mark.parametrize("number", [0, -1, 2**64])
def test_number_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(InvalidRequestError):
        layout.bit_reversed(number)


@pytest.mark.req("FMT-07")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "1" * 63,
        "1" * 65,
        "0" * 64,
        "2" + "0" * 63,
        "1" + "0" * 62 + "\n",
        "١" * 64,
        "+" + "1" * 63,
        "1_" * 32,
        " " + "1" * 63,
    ],
)
def test_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        layout.parse_bit_reversed(name)


@pytest.mark.req("FMT-07")
@pytest.mark.parametrize("suffix", ["", ".arrow", ".lance.tmp", "#1", ".LANCE"])
def test_wal_name_with_another_suffix_is_refused(suffix: str) -> None:
    with pytest.raises(InvalidRequestError):
        layout.parse_numbered_name("1" + "0" * 63 + suffix, ".lance")


def test_wal_suffix_of_no_codec_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        layout.wal_entry_path(REGION, 1, ".parquet")


@pytest.mark.req("FMT-01", "FMT-03", "FMT-04")
def test_region_paths_lie_under_the_region_directory() -> None:
    assert layout.region_directory(REGION) == ROOT
    assert layout.manifest_directory(REGION) == f"{ROOT}/manifest"
    assert layout.version_hint_path(layout.manifest_directory(REGION)) == f"{ROOT}/manifest/version_hint.json"
    assert layout.wal_entry_path(REGION, 1, ".arrow") == f"{ROOT}/wal/{'1' + '0' * 63}.arrow"
    assert layout.generation_path(REGION, "a1b2c3d4_gen_1") == f"{ROOT}/a1b2c3d4_gen_1"


@pytest.mark.req("FMT-02")
def test_index_lies_at_the_standard_location() -> None:
    assert layout.index_directory(REGION) == f"_indices/{REGION}"
    assert layout.region_snapshot_path(REGION) == f"_indices/{REGION}/index.lance"


@pytest.mark.req("FMT-12", "FMT-13")
def test_generation_directory_has_eight_fresh_digits_and_its_number() -> None:
    ids = IdSource(seeded_rng(1))
    names = {layout.generation_directory_name(ids.directory_prefix(), 7) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[0-9a-f]{8}_gen_[1-9][0-9]*", name) for name in names)
    assert {layout.parse_generation_directory(name) for name in names} == {7}


@pytest.mark.req("FMT-13", "FMT-46")
@pytest.mark.parametrize(("prefix", "generation"), [("abc", 1), ("A1B2C3D4", 1), ("a1b2c3d4", 0), ("a1b2c3d4", -1)])
def test_generation_directory_of_other_form_is_not_written(prefix: str, generation: int) -> None:
    with pytest.raises(InvalidRequestError):
        layout.generation_directory_name(prefix, generation)


@pytest.mark.req("FMT-14")
def test_recorded_path_with_a_shorter_prefix_is_used_as_it_stands() -> None:
    assert layout.generation_path(REGION, "abc123_gen_6") == f"{ROOT}/abc123_gen_6"
    assert layout.parse_generation_directory("abc123_gen_6") == 6


@pytest.mark.parametrize("name", ["wal", "gen_1", "_gen_1", "abc_gen_0", "abc_gen_01", "abc_gen_-1", "abc_gen_1x", ""])
def test_directory_that_is_no_generation_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        layout.parse_generation_directory(name)


@pytest.mark.req("FMT-14")
@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../x_gen_1",
        "a/b",
        "/abs",
        "a\\b",
        "wal",
        "manifest",
        "s3://b/x",
        "a\x00b",
        "a\n",
        "%2e%2e",
        "ä_gen_1",
    ],
)
def test_recorded_path_that_could_leave_the_region_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError):
        layout.generation_path(REGION, path)


@pytest.mark.req("FMT-16")
def test_table_manifest_name_counts_down() -> None:
    assert layout.table_manifest_path(1) == "_versions/18446744073709551614.manifest"
    assert layout.parse_table_manifest_name("18446744073709551614.manifest") == 1


@pytest.mark.parametrize("name", ["18446744073709551615.manifest", "1.manifest", "18446744073709551614", "latest", ""])
def test_other_names_are_no_table_manifests(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        layout.parse_table_manifest_name(name)


def test_table_version_zero_has_no_name() -> None:
    with pytest.raises(InvalidRequestError):
        layout.table_manifest_name(0)


def test_reservations_of_different_values_never_share_a_path() -> None:
    values = [{}, {"a": b""}, {"b": b""}, {"a": b"x"}, {"ax": b""}, {"a": b"", "b": b""}, {"a": b"\x00" * 8, "b": b"1"}]
    paths = {layout.region_reservation_path(1, value) for value in values}
    assert len(paths) == len(values)
    assert layout.region_reservation_path(1, {"a": b"1", "b": b"2"}) == layout.region_reservation_path(
        1, {"b": b"2", "a": b"1"}
    )
    assert layout.region_reservation_path(2, {}) != layout.region_reservation_path(1, {})
    assert all(path.startswith("_mem_wal/_regions/1/") for path in paths)

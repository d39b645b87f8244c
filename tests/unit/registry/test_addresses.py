"""No other spelling of an address leaves an `include` or avoids an `exclude`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwal_core.errors import InvalidRequestError
from memwal_core.registry import Registry, parse_registry
from memwal_core.registry.addresses import canonical, is_matched
from memwal_core.registry.entries import plan_registration

LAKE = """
exclude = ["s3://lake/sandbox/private/*"]
[[include]]
pattern = "S3A://Lake//sandbox/*"
"""


def _lake() -> Registry:
    return parse_registry(LAKE, "tables.toml")


@pytest.mark.parametrize(
    "spelling",
    ["s3://lake/sandbox/a", "s3a://lake/sandbox/a", "S3://LAKE/sandbox/a/", "s3://lake/sandbox/a//"],
)
def test_every_spelling_of_an_included_address_is_the_same_table(spelling: str) -> None:
    assert _lake().find(spelling).uri == "s3://lake/sandbox/a"


@pytest.mark.parametrize(
    "spelling",
    [
        "s3://lake/sandbox/../other/a",
        "s3://lake/sandbox/./../../etc",
        "s3://lake/sandbox/%2e%2e/other",
        "s3://lake/sandbox//../other",
        "s3://lake/sandbox/a?versionId=1",
        "s3://lake/sandbox/a#x",
        "s3://key:secret@lake/sandbox/a",
        "s3://lake:9000/sandbox/a",
        "s3://lake2/sandbox/a",
        "s3://lake./sandbox/a",
        "s3://l%61ke/sandbox/a",
        "s3://lake/sandboxed/a",
        "http://lake/sandbox/a",
        "s3:/lake/sandbox/a",
        "sandbox/a",
        "a\x00b",
        "",
    ],
)
def test_nothing_else_is_included(spelling: str) -> None:
    with pytest.raises(InvalidRequestError):
        _lake().find(spelling)


@pytest.mark.parametrize(
    "spelling",
    ["s3://lake/sandbox/private/a", "S3A://LAKE/sandbox/private/a/", "s3://lake/sandbox/private/a//"],
)
def test_no_spelling_avoids_an_exclusion(spelling: str) -> None:
    with pytest.raises(InvalidRequestError, match="excluded"):
        _lake().find(spelling)


def test_local_paths_are_compared_without_links_and_dots(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    for folder in (allowed, secret):
        (folder / "a.lance").mkdir(parents=True)
    (allowed / "link").symlink_to(secret)
    (tmp_path / "other-name").symlink_to(allowed)
    registry = parse_registry(f'[[include]]\npattern = "{tmp_path}/other-name/*"', "tables.toml")

    assert registry.find(f"{allowed}/a.lance").uri == str(allowed / "a.lance")
    assert registry.find(f"file://{tmp_path}/other-name/./a.lance/").uri == str(allowed / "a.lance")
    for outside in (f"{allowed}/link/a.lance", f"{allowed}/../secret/a.lance", f"{allowed}//..//secret/a.lance"):
        with pytest.raises(InvalidRequestError, match="not registered"):
            registry.find(outside)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "sandbox", "lake", "%2e%2e", "s3:", "*"]), max_size=8))
def test_what_is_found_lies_where_the_pattern_says(parts: list[str]) -> None:
    text = "s3://lake/sandbox/" + "/".join(parts)
    try:
        found = _lake().find(text)
    except InvalidRequestError:
        return
    assert found.uri.startswith("s3://lake/sandbox/")
    assert not {"..", ".", ""} & set(found.uri.removeprefix("s3://").split("/"))
    assert canonical(found.uri) == found.uri


def test_patterns_match_names_only_where_they_are_names() -> None:
    assert is_matched(("old",), ("old",))
    assert not is_matched(("old",), ("/data/old",))


INSIDE = """
exclude = ["s3://lake/payroll.lance", "s3://lake/hr", "wages"]
[[include]]
pattern = "s3://lake/*"
[[tables]]
name = "orders"
uri = "s3://lake/orders.lance"
[[tables]]
name = "wages"
uri = "s3://lake/wages.lance"
"""


@pytest.mark.parametrize("place", ["s3://lake/payroll.lance", "s3://lake/hr"])
def test_what_lies_in_an_excluded_place_is_excluded_too(place: str) -> None:
    """A flushed MemTable and a branch are tables of Lance themselves, of an address that no pattern was written for."""
    registry = parse_registry(INSIDE, "tables.toml")

    for below in ("", "/_mem_wal/935b64f6-a1fd-4af0-b1d5-1417179c97e1/10b2c37b_gen_1", "/tree/branch", "/table.lance"):
        with pytest.raises(InvalidRequestError, match="excluded"):
            registry.find(place + below)
        assert plan_registration(registry, [place + below]).added == ()
    assert [table.name for table in registry.maintained] == ["orders"]
    assert registry.find(f"{place}-of-others").uri == f"{place}-of-others"


def test_an_entry_in_an_excluded_place_is_excluded() -> None:
    text = 'exclude = ["/data/old"]\n[[tables]]\nname = "a"\nuri = "/data/old/a.lance"\n'

    assert parse_registry(text, "tables.toml").maintained == ()


@pytest.mark.parametrize(
    "inside",
    [
        "orders.lance/tree/branch", "orders.lance/a", "wages.lance/tree/branch", "x/_mem_wal",
        "other.lance/_mem_wal/935b64f6/10b2c37b_gen_1", "other.lance/_indices/0", "_versions/a",
        "other.lance/_mem_wal_repair/1",
    ],
)  # fmt: skip
def test_no_pattern_includes_what_lies_inside_a_table(inside: str) -> None:
    for more in ("", "single_user = true\n"):
        with pytest.raises(InvalidRequestError, match="inside a table"):
            parse_registry(more + INSIDE, "tables.toml").find(f"s3://lake/{inside}")

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import InvalidRequestError
from memwal_core.storage import StoreKind
from memwal_core.storage.address import canonical_uri, check_path, check_prefix, parse_address


@pytest.mark.parametrize(
    ("uri", "kind", "root"),
    [
        ("/data/table", StoreKind.LOCAL, "/data/table"),
        ("/data/table/", StoreKind.LOCAL, "/data/table"),
        ("/data/./x/../table//", StoreKind.LOCAL, "/data/table"),
        ("/data/my table", StoreKind.LOCAL, "/data/my table"),
        ("/data/100%/t%20t", StoreKind.LOCAL, "/data/100%/t%20t"),
        ("file:///data/table/", StoreKind.LOCAL, "/data/table"),
        ("FILE:///data/table", StoreKind.LOCAL, "/data/table"),
        ("file:///data/my table", StoreKind.LOCAL, "/data/my table"),
        ("file:///data/my%20table", StoreKind.LOCAL, "/data/my table"),
        ("file:///data/100%/%C3%A9%2520t", StoreKind.LOCAL, "/data/100%/\u00e9%20t"),
        ("s3://bucket/a/table", StoreKind.S3, "s3://bucket/a/table"),
        ("s3://bucket/a/table/", StoreKind.S3, "s3://bucket/a/table"),
        ("s3://bucket/my table", StoreKind.S3, "s3://bucket/my table"),
        ("s3a://bucket/a/table", StoreKind.S3, "s3://bucket/a/table"),
        ("s3://bucket", StoreKind.S3, "s3://bucket"),
        ("s3://bucket/", StoreKind.S3, "s3://bucket"),
        ("gs://bucket/table", StoreKind.GCS, "gs://bucket/table"),
        ("az://container/table", StoreKind.AZURE, "az://container/table"),
        ("memory://", StoreKind.MEMORY, "memory://"),
        ("memory://name/table", StoreKind.MEMORY, "memory://name/table"),
    ],
)
def test_usable_address_is_normalised(uri: str, kind: StoreKind, root: str) -> None:
    address = parse_address(uri)

    assert (address.kind, address.uri) == (kind, root)


def test_relative_path_is_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse_address("tables/one").uri == str(tmp_path / "tables/one")
    assert parse_address(".").uri == str(tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        "", " ", " /data/table", "/data/table ", "/data/table?", "/data/table?version=1", "/data/table#x", "/data/\x00",
        "http://host/table", "hdfs://host/table", "s3:/bucket/table", "s3:bucket", "s3://", "s3:///table",
        "s3://bucket/table?", "s3://bucket/table?versionId=1", "s3://bucket/a%20b", "s3://bucket/a//b",
        "s3://bucket/../b", "s3://bucket/a/.tmp-x", "s3://bucket:9000/table", "az://c@account.host/table",
        "file://data/table", "file:///data/table?x", "file:///data/table%3Fx", "file:///data/%ff", "file:///data/%00",
        "file:data",
        "s3://bucket/a /", "s3://bucket/a //", "/data/a /", "/data/a /.", "file:///data/a /", "~", "~/table",
    ],
)  # fmt: skip
def test_ambiguous_address_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_address(uri)


def test_parent_of_a_link_is_that_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path)

    for spelling in ("link/../t", f"{tmp_path}/link/../t", f"file://{tmp_path}/link/.././t"):
        assert parse_address(spelling).uri == str(tmp_path / "far" / "t")
    assert parse_address("far/../link/t").uri == str(tmp_path / "link" / "t")
    assert parse_address("far/away/..").uri == str(tmp_path / "far")


def test_canonical_spelling_is_one_that_is_taken(tmp_path: Path) -> None:
    for name in ("table#1", "table "):
        (tmp_path / name).mkdir()
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / name)

        with pytest.raises(InvalidRequestError):
            canonical_uri(str(tmp_path / "link"))


@pytest.mark.parametrize("uri", ["s3://key:hunter2@bucket/table", "s3://bucket/t?X-Amz-Signature=hunter2"])
def test_refusal_does_not_repeat_secrets(uri: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_address(uri)

    assert "hunter2" not in str(raised.value)


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=30))
def test_accepted_path_is_what_an_address_below_the_root_says(path: str) -> None:
    try:
        accepted = check_path(path)
    except InvalidRequestError:
        return

    assert accepted == path
    address = parse_address(f"s3://bucket/{path}") if path == path.strip() else None
    assert address is None or address.prefix == path
    assert not {"", ".", ".."} & set(path.split("/"))


def test_prefix_may_be_the_root_or_end_in_one_slash() -> None:
    assert check_prefix("") == ""
    assert check_prefix("a/b/") == "a/b"
    for refused in ("/", "a//", "/a", "../a"):
        with pytest.raises(InvalidRequestError):
            check_prefix(refused)


@pytest.mark.parametrize("uri", ["/lake/t\udcff.lance", "file:///lake/t\udcff", "s3://lake/t\udcff"])
def test_address_that_is_no_text_is_refused(uri: str) -> None:
    """A name in another encoding than the terminal's ended `memwal create` with a TypeError of Lance."""
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        parse_address(uri)


def test_relative_path_below_what_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake\udcff").mkdir()
    monkeypatch.chdir(tmp_path / "lake\udcff")

    with pytest.raises(InvalidRequestError, match="UTF-8"):
        parse_address("t.lance")

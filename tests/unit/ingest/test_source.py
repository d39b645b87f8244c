"""The name of a batch stands for the files that are read, and for no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.source import Source, batch_of_files
from memwal_core.jobs.ingest.request import SourceFormat

HIDDEN = ["_SUCCESS", "_committed_17", ".a.parquet.crc", "_temporary/0/a.parquet", ".tmp/a.parquet", "b._COPYING_"]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    put(tmp_path / "landing", "a.parquet")
    return tmp_path / "landing"


def put(directory: Path, name: str) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    os.utime(path, ns=(7, 7))


def named(*places: Path | str, **options: str) -> str:
    return batch_of_files(Source([str(place) for place in places], SourceFormat.PARQUET, options))


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("pattern", ["", "*"])
def test_file_that_is_not_read_leaves_the_name_of_the_batch(landing: Path, pattern: str, name: str) -> None:
    """A marker that came later made the same rows another batch, which was written over what had come since."""
    before = named(landing / pattern)
    put(landing, name)
    assert named(landing / pattern) == before


@pytest.mark.parametrize("name", ["b.parquet", "deep/er/b.parquet", "_c=1/a.parquet", "_x=y.parquet"])
def test_file_that_is_read_is_in_the_name_of_the_batch(landing: Path, name: str) -> None:
    before = named(landing)
    put(landing, name)
    assert named(landing) != before


def test_one_file_has_one_name_however_its_place_is_written(landing: Path) -> None:
    place = str(landing)
    assert {named(place), named(f"{place}/"), named(f"{place}/*.parquet"), named(f"file://{place}")} == {named(place)}
    assert named(place) == named(landing / "a.parquet")


@pytest.mark.parametrize("option", ["pathGlobFilter", "modifiedbefore", "modifiedAfter", "RECURSIVEFILELOOKUP"])
def test_batch_of_which_an_option_chooses_the_files_is_named_by_its_caller(landing: Path, option: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be derived") as refused:
        named(landing, **{option: "x"})
    assert (refused.value.facts["options"], "--batch" in refused.value.remedy) == ([option], True)
    assert named(landing, sep=";") == named(landing)


def test_batch_of_paths_that_hadoop_decides_is_named_by_its_caller(
    landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name was that of local files, while the rows came from where Hadoop's configuration led."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(landing))
    with pytest.raises(InvalidRequestError, match="cannot be derived"):
        named(landing)
    assert named(f"file://{landing}").startswith("files-")


def test_directory_without_a_file_that_is_read_has_nothing(landing: Path) -> None:
    (landing / "a.parquet").rename(landing / "_a.parquet")
    with pytest.raises(InvalidRequestError, match="there is no file"):
        named(landing)
    assert named(landing / "_a.parquet").startswith("files-")  # Named by the caller, so it is read.

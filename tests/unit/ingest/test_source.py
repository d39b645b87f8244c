"""The id of a batch that is derived from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.source import Source, batch_of_files, files_below
from memwal_core.jobs.ingest.request import SourceFormat


def named(*places: object) -> str:
    """Return the id of the batch in some places."""
    return batch_of_files(Source(list(map(str, places)), SourceFormat.PARQUET))


@pytest.mark.parametrize(
    "name", ["_SUCCESS", ".part-0.crc", "b.parquet._COPYING_", "_committed/c.parquet", ".d/e.parquet"]
)
def test_files_that_are_not_read_do_not_name_the_batch(tmp_path: Path, name: str) -> None:
    """A marker that came after the files made another batch of the same rows."""
    (tmp_path / "a.parquet").write_bytes(b"rows")
    before = named(tmp_path)

    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    assert named(tmp_path) == before
    assert files_below([str(tmp_path)]) == [str(tmp_path / "a.parquet")]


@pytest.mark.parametrize("name", ["b.parquet", "deep/er/b.parquet", "_day=1/b.parquet"])
def test_each_file_that_is_read_names_the_batch(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.parquet").write_bytes(b"rows")
    before = named(tmp_path)

    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"more")

    assert named(tmp_path) != before
    assert str(tmp_path / name) in files_below([str(tmp_path)])


def test_a_pattern_names_the_files_that_it_matches(tmp_path: Path) -> None:
    for name in ("1.parquet", "2.parquet"):
        (tmp_path / name).write_bytes(b"rows")

    by_pattern = named(tmp_path / "[12].parquet")

    assert (
        by_pattern == named(tmp_path / "1.parquet", tmp_path / "2.parquet") == named(f"file://{tmp_path}/[12].parquet")
    )
    (tmp_path / "3.parquet").touch()
    assert named(tmp_path / "[12].parquet") == by_pattern != named(tmp_path / "*.parquet")


def test_no_id_is_derived_where_hadoop_decides_which_files_are_read(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    with pytest.raises(InvalidRequestError, match="cannot be derived"):
        named(tmp_path / "a.parquet")

"""pylance and a local store share one directory without disturbing each other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.storage import open_store


@pytest.mark.parametrize("name", ["plain", "with blank", "100% sure", "ünïcode"])
def test_pylance_opens_the_address_that_the_store_gives(tmp_path: Path, name: str) -> None:
    store = open_store(f"{tmp_path}/{name}/")
    lance.write_dataset(pa.table({"id": [1, 2]}), store.uri_of("t.lance"))

    assert store.list_directories("") == ["t.lance"]
    assert lance.dataset(store.uri_of("t.lance")).count_rows() == 2


@pytest.mark.parametrize(
    "spelling", ["my%20table", "my table", "100%25", "100%", "a%zz", "%C3%BCni", "a%2Fb", "lit%2520eral"]
)
def test_file_address_is_the_place_that_pylance_opens(tmp_path: Path, spelling: str) -> None:
    """Addresses with percent signs were refused; taken literally, they would be another place than Lance's."""
    for name in ("my table", "100%", "a%zz", "üni", "a/b", "lit%20eral"):
        lance.write_dataset(pa.table({"name": [name]}), str(tmp_path / name / "t.lance"))
    uri = f"file://{tmp_path}/{spelling}/t.lance"

    assert lance.dataset(open_store(uri).uri).to_table() == lance.dataset(uri).to_table()


def test_clean_up_of_versions_leaves_staged_files_alone(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t.lance"))
    dataset = lance.write_dataset(pa.table({"id": [1]}), store.uri)
    staged = store.staging_directory("x") / "prepared.lance"
    staged.write_bytes(b"half")
    dataset = lance.write_dataset(pa.table({"id": [2]}), store.uri, mode="overwrite")

    stats = dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)

    assert stats.old_versions == 1
    assert staged.exists()
    assert lance.dataset(store.uri).count_rows() == 1

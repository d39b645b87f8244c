"""A machine without room or descriptors left, where entries are whole: nobody may be told to give their rows up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.translate import decoding
from memwal_core.errors import UnavailableError
from memwal_core.format.lance_file.schema import plain_file
from memwal_core.format.memwal_index.snapshot_file import snapshot_to_bytes
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.storage import open_store
from memwal_core.wal import LanceCodec, damage_of_entry
from memwal_core.wal.entry import ATTEMPT_KEY, WRITER_EPOCH_KEY
from memwal_core.writer.layout import TableLayout
from testkit.faults.process_limits import largest_file, no_more_files
from testkit.tables.wal_entries import written_entry

KEY = {"lance-schema:unenforced-primary-key": "true"}
KINDS = {"ours": pa.string(), "lance": pa.list_(pa.string())}


@pytest.mark.parametrize("limit", [partial(largest_file, 0), no_more_files], ids=["room", "files"])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_entry_is_not_called_damaged(
    tmp_path: Path, kind: str, limit: Callable[[], AbstractContextManager[None]]
) -> None:
    """`memwal repair` offered to give the rows of every unflushed entry of an S3 table up, and did it when told to."""
    store, region_id = open_store("memory://"), IdSource().region_id()
    path = wal_entry_path(region_id, 1, LANCE_WAL_SUFFIX)
    # Names of its own, for the description of a schema is remembered.
    rows = pa.table({tmp_path.name: pa.array([None], KINDS[kind])})
    entry = {WRITER_EPOCH_KEY: "1", ATTEMPT_KEY: "ab"}
    store.put(path, written_entry(tmp_path / "entry", LanceCodec({}), rows, entry))
    store.staging_directory(path)

    with limit(), pytest.raises(UnavailableError, match=r"temporary files"):
        damage_of_entry(store, region_id, 1, LANCE_WAL_SUFFIX)

    assert damage_of_entry(store, region_id, 1, LANCE_WAL_SUFFIX) == ""


def test_whole_entry_on_a_local_disk_which_lance_opens_itself_is_not_called_damaged(tmp_path: Path) -> None:
    store, region_id, codec = open_store(str(tmp_path / "t")), IdSource().region_id(), LanceCodec({})
    path = wal_entry_path(region_id, 1, LANCE_WAL_SUFFIX)
    rows = pa.table({tmp_path.name: pa.array([None], KINDS["lance"])})
    data = written_entry(tmp_path / "entry", codec, rows, {WRITER_EPOCH_KEY: "1", ATTEMPT_KEY: "ab"})
    store.put(path, data)

    with no_more_files(), pytest.raises(UnavailableError, match="could not be read here"):
        codec.decode(store, region_id, 1, data)

    assert codec.decode(store, region_id, 1, data).rows.num_rows == 1


def _opened(table: BaseTable) -> object:
    return TableLayout.of(table.state())


def _shown(table: BaseTable) -> object:
    return snapshot_to_bytes(pa.table({"region": [table.uri]}))


def _packed(table: BaseTable) -> object:
    return plain_file(pa.table({table.uri.rpartition("/")[2]: ["mango"]}), {})


@pytest.mark.parametrize("limit", [partial(largest_file, 0), no_more_files], ids=["room", "files"])
@pytest.mark.parametrize("act", [_opened, _shown, _packed])
def test_error_names_the_directory_and_a_second_attempt_succeeds(
    tmp_path: Path, act: Callable[[BaseTable], object], limit: Callable[[], AbstractContextManager[None]]
) -> None:
    """A full one was an error of Lance or Python, or a type that "Lance cannot store", which was then remembered."""
    # A name that no other test has told the caches.
    rows = pa.table({"id": [1], f"moment_{tmp_path.name}": pa.array([None], pa.time64("ns"))})
    schema = rows.schema.set(0, pa.field("id", pa.int64(), nullable=False, metadata=KEY))
    uri = lance.write_dataset(rows.cast(schema), str(tmp_path / f"t{tmp_path.name}")).uri
    table = BaseTable.open(uri)
    table.create_mem_wal_index((), [])

    with limit(), pytest.raises(UnavailableError, match=r"directory for temporary files|Too many open"):
        act(table)

    assert act(table)


@pytest.mark.parametrize("problem", ["No space left on device (os error 28)", "Too many open files (os error 24)"])
def test_file_of_lance_is_not_called_damaged(problem: str) -> None:
    with pytest.raises(UnavailableError, match="os error"), decoding("t"):
        raise OSError(f"LanceError(IO): Unable to open file /t/data/a.lance: {problem}")


def test_panic_over_the_machine_is_not_called_damage() -> None:
    with pytest.raises(UnavailableError, match="TooMany"), decoding("t"):
        raise RuntimeError('Creating Tokio runtime: Os { code: 24, kind: TooManyOpenFiles, message: "..." }')

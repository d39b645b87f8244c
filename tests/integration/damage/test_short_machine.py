"""A machine without room or descriptors left, where entries are whole: nobody may be told to give their rows up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table.translate import decoding
from memwal_core.errors import UnavailableError
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.storage import open_store
from memwal_core.wal import LanceCodec, damage_of_entry
from memwal_core.wal.entry import ATTEMPT_KEY, WRITER_EPOCH_KEY
from testkit.faults.process_limits import largest_file, no_more_files
from testkit.tables.wal_entries import written_entry

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

    with limit(), pytest.raises(UnavailableError, match=r"could not be read here .*temporary files"):
        damage_of_entry(store, region_id, 1, LANCE_WAL_SUFFIX)

    assert damage_of_entry(store, region_id, 1, LANCE_WAL_SUFFIX) == ""


@pytest.mark.parametrize("problem", ["No space left on device (os error 28)", "Too many open files (os error 24)"])
def test_file_of_lance_is_not_called_damaged(problem: str) -> None:
    with pytest.raises(UnavailableError, match="os error"), decoding("t"):
        raise OSError(f"LanceError(IO): Unable to open file /t/data/a.lance: {problem}")


def test_panic_over_the_machine_is_not_called_damage() -> None:
    with pytest.raises(UnavailableError, match="TooMany"), decoding("t"):
        raise RuntimeError('Creating Tokio runtime: Os { code: 24, kind: TooManyOpenFiles, message: "..." }')

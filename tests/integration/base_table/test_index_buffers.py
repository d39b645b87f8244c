"""Global buffers of index files, as pylance's own reader gives them, and a flush of many regions that need them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.index_file import IndexFile
from memwal_core.format.paths import INDEX_DIRECTORY
from memwal_core.storage import open_store
from memwal_core.wal import plain_file
from memwal_core.writer import TableWriter
from testkit.tables.articles import articles, make_articles_table

KEY = b"storage_metadata"


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ", "IVF_FLAT"])
def test_buffers_and_metadata_are_those_that_lance_reads(tmp_path: Path, kind: str) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=300, kinds=(kind,))
    (segment,) = next(each for each in table.dataset().describe_indices() if each.name == "vec_idx").segments
    path = f"{INDEX_DIRECTORY}/{segment.uuid}/auxiliary.idx"
    reader, file = LanceFileReader(table.store.uri_of(path)), IndexFile(table.store, path)

    assert file.metadata(KEY) == reader.metadata().schema.metadata[KEY]
    for number in (0, 1):
        assert file.buffer(number) == bytes(reader.read_global_buffer(number))
    with pytest.raises(CorruptionError, match="lacks what describes it"):
        file.metadata(b"absent")
    with pytest.raises(ObjectNotFoundError):
        IndexFile(table.store, f"{INDEX_DIRECTORY}/absent.idx")


def test_any_changed_byte_of_the_tail_gives_bytes_of_the_file_or_corruption(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t"))
    path = f"{INDEX_DIRECTORY}/damaged.idx"
    good = plain_file(pa.table({"id": [1, 2, 3]}), {KEY.decode(): "facts"})
    store.put(path, good)
    assert IndexFile(store, path).metadata(KEY) == b"facts"
    refused = 0
    for at in range(64, len(good)):
        for bits in (0x01, 0x80, 0xFF):
            store.put(path, good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :])
            try:
                file = IndexFile(store, path)
                file.metadata(KEY)
                assert len(file.buffer(0)) <= len(good)
            except CorruptionError:
                refused += 1
    assert refused > 100  # Where a change leads outside, or nothing is understood; other bytes are not looked at.
    store.put(path, good)
    for number in (-1, 1, 2**40):
        with pytest.raises(CorruptionError, match="cannot be read"):
            IndexFile(store, path).buffer(number)


@pytest.mark.parametrize("size", [0, 1, 39])
def test_file_that_is_shorter_than_a_footer_is_corruption(tmp_path: Path, size: int) -> None:
    store = open_store(str(tmp_path / "t"))
    path = f"{INDEX_DIRECTORY}/short.idx"
    store.put(path, b"x" * size)
    with pytest.raises(CorruptionError, match="cannot be read"):
        IndexFile(store, path)


def test_regions_that_are_flushed_at_once_inherit_a_codebook_without_standing_still(tmp_path: Path) -> None:
    """pylance's file reader kept the interpreter lock while it waited, and the process stood still for ever."""
    table = make_articles_table(str(tmp_path / "t"), rows=300, kinds=("IVF_PQ",), maintained=("vec_idx",))
    for first in (300, 340, 380):
        with TableWriter.open(table) as writer:
            writer.put(articles(first, 40))
            assert len(writer.flush()) == 4

"""Global buffers of index files, as pylance's own reader gives them, and a flush of many regions that need them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance.file import LanceFileReader

from memwal_core.base_table.index_buffers import IndexFile
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.storage.layout import INDEX_DIRECTORY
from memwal_core.testing.articles import articles, make_articles_table
from memwal_core.writer import TableWriter

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


def test_regions_that_are_flushed_at_once_inherit_a_codebook_without_standing_still(tmp_path: Path) -> None:
    """pylance's file reader kept the interpreter lock while it waited, and the process stood still for ever."""
    table = make_articles_table(str(tmp_path / "t"), rows=300, kinds=("IVF_PQ",), maintained=("vec_idx",))
    for first in (300, 340, 380):
        with TableWriter.open(table) as writer:
            writer.put(articles(first, 40))
            assert len(writer.flush()) == 4

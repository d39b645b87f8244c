"""What one search of a view does is counted: calls of Lance's scanner, not seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA

DIMENSION = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)
WORDS = np.array([f"word{number}" for number in range(20)])


def _rows(ids: list[int], rng: np.random.Generator) -> pa.Table:
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(2, 20, len(ids))]
    vectors = rng.normal(size=(len(ids), DIMENSION)).astype(np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    return pa.table([pa.array(ids, pa.int64()), pa.array(texts), values], schema=SCHEMA)


def _view(uri: str, gap: int) -> TableView:
    """Return a view of a base table whose indexes lack merged generations, and of one that is not merged."""
    rng = np.random.default_rng(31)
    lance.write_dataset(_rows(list(range(2000)), rng), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="by_text", stem=False)
    lance.dataset(uri).create_index("vec", "IVF_FLAT", name="by_vec", num_partitions=2)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)], ["by_text", "by_vec"])
    with TableWriter.open(base) as writer:
        for number in range(gap + 1):
            if number == gap and gap:
                Table.open(uri).run(MergeRequest())
            writer.put(_rows([*range(number * 10, number * 10 + 10), 5000 + number], rng))
            writer.flush()
    return Table.open(uri).view()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what a search may do: scanners, rows taken by offset, datasets in memory, files read, looks at indexes."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counting(*args: Any, **options: Any) -> Any:
            counted[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    for name in ("scanner", "take", "describe_indices"):
        count(lance.LanceDataset, name)
    count(lance, "write_dataset")
    count(LanceFileReader, "read_all")
    return counted


@pytest.mark.req("RD-29", "RD-55")
@pytest.mark.parametrize("gap", [0, 3])
def test_text_search_asks_each_source_once_for_each_word(tmp_path: Path, calls: Counter[str], gap: int) -> None:
    """It used to count, find and probe words one by one, and to read and tokenize the texts of all candidates."""
    view = _view(str(tmp_path / "t"), gap)
    view.full_text_search(TextQuery("text", "word1 word2", k=5, columns=("id",)))
    calls.clear()
    view.full_text_search(TextQuery("text", "word3 word4 word5", k=5, columns=("id",)))

    sources, words = 2 + gap, 3
    # The best rows are read at once. Of deleted rows an index says nothing, so there one text tells each weight.
    assert calls["scanner"] <= sources * words + 1 + (1 if gap else 0)
    assert calls["take"] <= 1  # Of the unmerged generation, by number.
    assert calls["write_dataset"] == calls["read_all"] == calls["describe_indices"] == 0


@pytest.mark.req("RD-29", "RD-52")
@pytest.mark.parametrize("gap", [0, 3])
def test_vector_search_of_small_generations_is_one_search_in_memory(
    tmp_path: Path, calls: Counter[str], gap: int
) -> None:
    """It used to search every generation, and the base table's rows of those that stand in for its index once more."""
    view = _view(str(tmp_path / "t"), gap)
    rng = np.random.default_rng(37)
    view.vector_search(VectorQuery("vec", rng.normal(size=DIMENSION), k=5, columns=("id",)))
    calls.clear()
    view.vector_search(VectorQuery("vec", rng.normal(size=DIMENSION), k=5, columns=("id",)))

    # The base table through its index, all other rows in memory, and those of them that are among the nearest.
    assert calls["scanner"] <= 3
    assert calls["take"] == calls["write_dataset"] == calls["read_all"] == calls["describe_indices"] == 0


@pytest.mark.req("RD-59")
def test_lookup_in_a_table_with_deleted_rows_takes_none_by_number(tmp_path: Path, calls: Counter[str]) -> None:
    """Lance looked at the deleted rows of every fragment for each lookup, some ten milliseconds long."""
    uri = str(tmp_path / "t")
    view = _view(uri, 3)
    view.lookup(pa.table({"id": pa.array(range(100, 300), pa.int64())}))
    calls.clear()
    found = view.lookup(pa.table({"id": pa.array([1999, 1500, 35, 5002, 7000], pa.int64())}), ("text", "id"))

    assert found.column("id").to_pylist() == [1999, 1500, 35, 5002]
    rows = view.scan().to_arrow()
    texts = dict(zip(rows.column("id").to_pylist(), rows.column("text").to_pylist(), strict=True))
    assert found.column("text").to_pylist() == [texts[key] for key in (1999, 1500, 35, 5002)]
    assert calls["take"] == 0


def test_filtered_text_search_looks_once_at_the_indexes_of_each_dataset(tmp_path: Path, calls: Counter[str]) -> None:
    """It looked again for each word."""
    view = _view(str(tmp_path / "t"), 1)
    view.full_text_search(TextQuery("text", "word1 word2", k=5, columns=("id",)))
    calls.clear()
    view.full_text_search(TextQuery("text", "word1 word2 word3", k=5, columns=("id",), filter_sql="id >= 0"))
    assert calls["describe_indices"] == 3

"""Full-text searches rank and score as one index over the newest versions of all rows would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import MatchQuery

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.reader.text import segments
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA
from testkit.tables.readable import keys_of, read_with

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("text", pa.string())]
)
WORDS = np.array([f"word{number}" for number in range(60)])
SHARES = 1 / np.arange(1, 61)


def _rows(ids: list[int], rng: np.random.Generator) -> pa.Table:
    lengths = rng.integers(3, 25, len(ids))
    texts = [" ".join(rng.choice(WORDS, size, p=SHARES / SHARES.sum())) for size in lengths]
    return pa.table([pa.array(ids, pa.int64()), pa.array(texts)], schema=SCHEMA)


def _table(
    uri: str, rows: pa.Table, maintained: tuple[str, ...] = (), max_rows_per_file: int = 1000, **tokenizer: Any
) -> BaseTable:
    lance.write_dataset(rows, uri, max_rows_per_file=max_rows_per_file)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", **{"stem": False, **tokenizer})
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)], maintained)
    return table


def _one_index(
    rows: pa.Table, query: str, k: int, path: Path, filter_sql: str | None = None, **tokenizer: Any
) -> list[tuple[int, float]]:
    dataset = lance.write_dataset(rows.replace_schema_metadata(None), str(path), mode="overwrite")
    dataset.create_scalar_index("text", "INVERTED", **{"stem": False, **tokenizer})
    found = dataset.scanner(
        columns=["id", "_score"],
        full_text_query=MatchQuery(query, "text"),
        limit=k,
        filter=filter_sql,
        prefilter=True,
    ).to_table()
    return list(zip(found.column("id").to_pylist(), found.column("_score").to_pylist(), strict=True))


def _assert_same(view: TableView, query: str, k: int, path: Path, filter_sql: str | None = None) -> None:
    expected = _one_index(view.scan().to_arrow(), query, k, path, filter_sql)
    found = view.full_text_search(TextQuery("text", query, k=k, columns=("id",), filter_sql=filter_sql))
    scores = found.column("_score").to_pylist()

    assert scores == pytest.approx([score for _, score in expected], rel=1e-4)
    # Rows of nearly equal scores may change places.
    certain = {key for key, score in expected if score > expected[-1][1] * 1.001}
    assert certain <= set(found.column("id").to_pylist())


def test_unflushed_rows_are_found_in_a_column_that_allows_no_null(tmp_path: Path) -> None:
    """Their texts had another schema than those of a flushed MemTable, which ended the search in Arrow's words."""
    uri = str(tmp_path / "t")
    rng = np.random.default_rng(29)
    schema = pa.schema([each.with_nullable(False) for each in SCHEMA])
    with TableWriter.open(_table(uri, _rows([1, 2], rng).cast(schema))) as writer:
        writer.put(_rows([3], rng).cast(schema))
        writer.flush()
        writer.put(_rows([4], rng).cast(schema))
        _assert_same(Table.open(uri).view(Consistency.DURABLE), "word0 word1 word2", 4, tmp_path / "one")


@pytest.mark.parametrize("stem", [False, True])
def test_second_index_of_a_column_hides_no_row(tmp_path: Path, stem: bool) -> None:
    """Lance searched the index that was made first, and was thought to search the first by name, which has more."""
    rng = np.random.default_rng(23)
    uri = str(tmp_path / "t")
    lance.write_dataset(_rows(list(range(50)), rng), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="old", stem=False)
    lance.write_dataset(_rows(list(range(50, 100)), rng), uri, mode="append")
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="new", stem=stem)
    lance.write_dataset(_rows(list(range(100, 150)), rng), uri, mode="append")
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])

    _assert_same(Table.open(uri).view(), "word0 word7", 150, tmp_path / "one")


def test_other_tokenizer_of_a_second_index_of_a_flushed_memtable_is_noticed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "text": ["running", "walking"]}, schema=SCHEMA)
    with TableWriter.open(_table(uri, rows)) as writer:
        writer.put(pa.table({"id": [3, 4], "text": ["running", "runs"]}, schema=SCHEMA))
        writer.flush()
    for directory in Path(uri).glob("_mem_wal/*/*_gen_*"):
        lance.dataset(str(directory)).create_scalar_index("text", "INVERTED", name="old", stem=True)
        lance.dataset(str(directory)).create_scalar_index("text", "INVERTED", name="new", stem=False)

    _assert_same(Table.open(uri).view(), "running", 10, tmp_path / "one")


@pytest.mark.req("RD-55", "RD-56")
@pytest.mark.parametrize(
    "query", ["word1", "word3 word40", "word0 word7 word25", "word59", "nowhere", "word4 word4 word9"]
)
def test_ranking_and_scores_are_those_of_one_index(tmp_path: Path, query: str) -> None:
    rng = np.random.default_rng(11)
    uri = str(tmp_path / "t")
    with TableWriter.open(_table(uri, _rows(list(range(300)), rng))) as writer:
        writer.put(_rows([*range(60), *range(1000, 1080)], rng))
        writer.flush()
        writer.delete(keys_of(*range(100, 130), 1001))
        writer.put(_rows(list(range(30)), rng))
        writer.flush()
        writer.put(_rows(list(range(20, 40)), rng))
        table = read_with(uri, writer.writers.values())
        for consistency in (Consistency.LATEST, Consistency.IN_PROCESS):
            _assert_same(table.view(consistency), query, 10, tmp_path / "one")
        _assert_same(table.view(Consistency.LATEST), query, 10, tmp_path / "one", "id < 50")


OWN_STOP_WORDS = {"remove_stop_words": True, "custom_stop_words": ["user"]}
"""They take the place of Lance's own, "some" among them."""
CODE = {"analyzer": "code", "base_tokenizer": "code", "split_identifiers": True}


@pytest.mark.parametrize("maintained", [(), ("text_idx",)], ids=["indexed in memory", "maintained"])
@pytest.mark.parametrize(
    ("tokenizer", "query"),
    [
        (CODE, "name"),
        (CODE, "getUserName"),
        (CODE | {"split_on_numerics": False, "preserve_original": False}, "user42"),
        (CODE | {"index_operators": True}, "user + name"),
        ({"base_tokenizer": "raw"}, "many words"),
        ({"base_tokenizer": "raw"}, "other words"),
        ({"base_tokenizer": "raw"}, "name"),
        ({"base_tokenizer": "ngram"}, "er 42"),
        ({"stem": True}, "databases"),
        ({"stem": True}, "databases/internals"),
        (OWN_STOP_WORDS, "user name"),
        (OWN_STOP_WORDS, "some"),
    ],
)
def test_every_tokenizer_finds_and_scores_as_one_index(
    tmp_path: Path, tokenizer: dict[str, Any], query: str, maintained: tuple[str, ...]
) -> None:
    uri = str(tmp_path / "t")
    base = ["getUserName returns user42", "user42 + name", "name", "databases/internals", "", "user 42", "many words"]
    newer = ["setUserName takes user42", "some databases", "internals", "user + name", "other words"]
    rows = pa.table([pa.array(range(7)), base], schema=SCHEMA)
    with TableWriter.open(_table(uri, rows, maintained, **tokenizer)) as writer:
        writer.put(pa.table([pa.array(range(5, 10)), newer], schema=SCHEMA))
        writer.flush()

    view = Table.open(uri).view()
    expected = _one_index(view.scan().to_arrow(), query, 20, tmp_path / "one", **tokenizer)
    found = view.full_text_search(TextQuery("text", query, k=20, columns=("id",)))

    scores = dict(zip(found.column("id").to_pylist(), found.column("_score").to_pylist(), strict=True))
    assert scores == pytest.approx(dict(expected), rel=1e-4)


def test_lists_of_texts_are_searched_as_one_index(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    schema = pa.schema([SCHEMA.field("id"), ("text", pa.list_(pa.string()))])
    base = [["hello world", None, "word"], ["other"], [], None, ["hello", "hello"]]
    newer = [["hello you", "hello"], ["hello", None], [None], ["other", "word"]]
    with TableWriter.open(_table(uri, pa.table([range(5), base], schema=schema))) as writer:
        writer.put(pa.table([range(4, 8), newer], schema=schema))
        writer.flush()

    view = Table.open(uri).view()
    expected = _one_index(view.scan().to_arrow(), "hello", 20, tmp_path / "one")
    found = view.full_text_search(TextQuery("text", "hello", k=20, columns=("id",)))

    scores = dict(zip(found.column("id").to_pylist(), found.column("_score").to_pylist(), strict=True))
    assert scores == pytest.approx(dict(expected), rel=1e-4)


@pytest.mark.req("RD-56")
def test_rare_word_in_a_small_generation_does_not_jump_to_the_top(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    base = pa.table([pa.array(range(100), pa.int64()), pa.array(["common text here"] * 100)], schema=SCHEMA)
    with TableWriter.open(_table(uri, base)) as writer:
        writer.put(pa.table([pa.array([500], pa.int64()), pa.array(["common"])], schema=SCHEMA))
        writer.flush()
    view = Table.open(uri).view()
    found = view.full_text_search(TextQuery("text", "common", k=3))

    # Alone in its generation the row would score 0.29; among all rows the word says next to nothing.
    assert max(found.column("_score").to_pylist()) < 0.02
    _assert_same(view, "common", 3, tmp_path / "one")


@pytest.mark.req("RD-55", "RD-56")
@pytest.mark.parametrize(
    ("filter_sql", "held", "few"), [(None, 1 << 20, 0), ("id >= 9000", 1 << 20, 0), (None, 0, 0), (None, 0, 10_000)]
)
def test_row_that_its_own_index_ranks_behind_thousands_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filter_sql: str | None, held: int, few: int
) -> None:
    """A search used to stop at 4096 candidates of a source, without saying so."""
    # Lengths of documents are held, or read from the index for each search, or told from a few texts.
    monkeypatch.setattr(segments, "MAX_CACHED_DOCUMENTS", held)
    monkeypatch.setattr(segments, "FEW_TEXTS", few)
    uri = str(tmp_path / "t")
    # Half the rows have "late" in the base table's index, but most of them have got another text since.
    texts = ["late one two"] * 5000 + ["often one two"] * 4980 + ["late"] * 4 + ["late one two three four"] * 16
    base = pa.table([pa.array(range(len(texts)), pa.int64()), pa.array(texts)], schema=SCHEMA)
    with TableWriter.open(_table(uri, base)) as writer:
        ids = list(range(10, 5000))
        newer = [f"one two number{key} x{key % 7}" for key in ids]
        writer.put(pa.table([pa.array(ids, pa.int64()), pa.array(newer)], schema=SCHEMA))
        writer.flush()
    view = Table.open(uri).view()
    found = view.full_text_search(TextQuery("text", "often late", k=20, columns=("text",), filter_sql=filter_sql))

    assert all(text.startswith("late") for text in found.column("text").to_pylist())
    _assert_same(view, "often late", 20, tmp_path / "one", filter_sql)
    _assert_same(view, "late late often", 33, tmp_path / "one", filter_sql)


@pytest.mark.req("RD-51")
def test_old_text_of_an_updated_row_is_not_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table([pa.array([1, 2, 3], pa.int64()), pa.array(["apple pie", "apple tree", "pear"])], schema=SCHEMA)
    with TableWriter.open(_table(uri, rows)) as writer:
        writer.put(pa.table([pa.array([1], pa.int64()), pa.array(["plum"])], schema=SCHEMA))
        writer.delete(keys_of(2))
        writer.flush()
    table = Table.open(uri)

    assert table.full_text_search(TextQuery("text", "apple")).num_rows == 0
    assert table.full_text_search(TextQuery("text", "plum")).column("id").to_pylist() == [1]


@pytest.mark.req("RD-28", "RD-33")
def test_merged_rows_that_the_index_lacks_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    uri = str(tmp_path / "t")
    with TableWriter.open(_table(uri, _rows(list(range(200)), rng))) as writer:
        writer.put(_rows(list(range(500, 540)), rng))
        writer.flush()
    Table.open(uri).run(MergeRequest())
    view = Table.open(uri).view()
    found = view.full_text_search(TextQuery("text", "word5", k=300))
    expected = [row["id"] for row in view.scan().to_arrow().to_pylist() if "word5" in row["text"].split()]

    assert sorted(found.column("id").to_pylist()) == sorted(expected)
    assert any(key >= 500 for key in expected)


@pytest.mark.req("RD-55")
@pytest.mark.parametrize("maintained", [(), ("text_idx",)], ids=["indexed in memory", "maintained"])
def test_filter_whose_index_covers_less_than_the_text_index_hides_no_row(
    tmp_path: Path, maintained: tuple[str, ...]
) -> None:
    """Lance's fast search lets a scalar index filter, and finds no row of a fragment which that one lacks."""
    rng = np.random.default_rng(19)
    uri = str(tmp_path / "t")
    lance.write_dataset(_rows(list(range(100)), rng), uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(_rows(list(range(100, 200)), rng), uri, mode="append")
    lance.dataset(uri).create_scalar_index("text", "INVERTED", stem=False)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)], maintained)
    with TableWriter.open(base) as writer:
        writer.put(_rows([*range(90, 110), *range(1000, 1020)], rng))
        writer.flush()

    _assert_same(Table.open(uri).view(), "word5", 300, tmp_path / "one", "id > 50")


@pytest.mark.req("RD-55", "RD-56")
def test_rows_that_a_compaction_removed_are_not_found_in_a_table_with_stable_row_ids(tmp_path: Path) -> None:
    """The index keeps their ids, which Lance returned and nothing could read: the search ended in an IndexError."""
    rng = np.random.default_rng(37)
    uri = str(tmp_path / "t")
    lance.write_dataset(_rows(list(range(200)), rng), uri, enable_stable_row_ids=True)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", stem=False)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)])
    table = Table.open(uri)
    with table.writer() as writer:
        writer.delete(keys_of(*range(1, 200, 9)))
        writer.flush()
        table.run(MergeRequest())
        table.run(CompactRequest(force=True))
        _assert_same(table.view(Consistency.LATEST), "word5 word1", 300, tmp_path / "one")
        writer.put(_rows(list(range(0, 200, 5)), rng))
        for filter_sql in (None, "id < 100"):
            _assert_same(table.view(Consistency.IN_PROCESS), "word5 word1", 300, tmp_path / "one", filter_sql)


@pytest.mark.req("RD-51", "RD-55")
@pytest.mark.parametrize("deleted_before", [False, True])
def test_rows_are_found_after_another_program_compacts_with_a_deferred_remap(
    tmp_path: Path, *, deleted_before: bool
) -> None:
    """Nothing was found: the index has the row ids of before, none of which was live."""
    rng = np.random.default_rng(41)
    uri = str(tmp_path / "t")
    _table(uri, _rows(list(range(200)), rng), max_rows_per_file=50)
    table = Table.open(uri)
    with table.writer() as writer:
        if deleted_before:
            writer.delete(keys_of(*range(1, 200, 9)))
            writer.flush()
            table.run(MergeRequest())
        lance.dataset(uri).optimize.compact_files(defer_index_remap=True)
        for _ in range(2):
            writer.put(_rows(list(range(0, 50, 5)), rng))
            writer.delete(keys_of(2, 4))
            writer.flush()
            for filter_sql in (None, "id < 100"):
                view = table.view(Consistency.LATEST)
                found = view.full_text_search(TextQuery("text", "word5 word1", k=300, filter_sql=filter_sql))
                expected = dict(_one_index(view.scan().to_arrow(), "word5 word1", 300, tmp_path / "one", filter_sql))
                scores = dict(zip(found.column("id").to_pylist(), found.column("_score").to_pylist(), strict=True))
                assert scores.keys() == expected.keys()
                assert [scores[key] for key in expected] == pytest.approx(list(expected.values()), rel=0.03)
            table.run(MergeRequest())


@pytest.mark.req("RD-54")
def test_plan_names_every_source_with_the_query(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(_table(uri, _rows([1], np.random.default_rng(1)))) as writer:
        writer.put(_rows([1], np.random.default_rng(1)))
        (region,) = (each.region_id for each in writer.writers.values())
        view = Table.open(uri).view(Consistency.DURABLE)
        text = view.explain_full_text_search(TextQuery("text", "search terms", k=7))

    assert text.replace(str(region), "A") == (
        "GlobalLimitExec: limit=7\n"
        "  SortExec: order_by=[_bm25 DESC]\n"
        "    FilterStaleExec: newer_keys=[region_A[gen=1]]\n"
        "      GlobalBM25Exec\n"
        "        UnionExec\n"
        '          FTSExec: base_table[gen=-1], query="search terms"\n'
        '          FTSExec: region_A[gen=1], query="search terms"'
    )


@pytest.mark.parametrize("query", [TextQuery("id", "x"), TextQuery("none", "x"), TextQuery("text", " ")])
def test_query_that_does_not_fit_is_refused(tmp_path: Path, query: TextQuery) -> None:
    uri = str(tmp_path / "t")
    _table(uri, _rows([1], np.random.default_rng(1)))

    with pytest.raises(InvalidRequestError):
        Table.open(uri).full_text_search(query)

"""Vector and text search while the base table's index lags behind merges: time, and how much of the truth is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import MatchQuery

from bench.harness import Arm, Case, Comparison, Measure, Work
from bench.tables import UNSYNCED, MadeOnce
from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer import TableWriter

FLOATS = 32
K = 10
WORDS = 2000
_GENERATION_ROWS = 1000
_SEED = 9
_NPROBES = 4
_REFINE = 4
_RECALL = Measure("recall", "of the best 10 found")

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), FLOATS)),
    ]
)


@dataclass(frozen=True, slots=True)
class Searched:
    """A table to search, and the truth.

    Attributes:
        uri: Where it is.
        vectors: Queries, shape (queries, ``FLOATS``).
        nearest: Keys of the nearest rows of each.
        texts: Queries.
        scores: Best scores of each, of one index over all rows.
    """

    uri: str
    vectors: npt.NDArray[np.float32]
    nearest: tuple[frozenset[int], ...]
    texts: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]


def _rows(keys: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    """Make rows in clusters, with words of very different frequency."""
    centers = np.random.default_rng(_SEED).normal(size=(64, FLOATS)) * 2
    vectors = (centers[rng.integers(0, 64, len(keys))] + rng.normal(size=(len(keys), FLOATS))).astype(np.float32)
    share = 1 / np.arange(1, WORDS + 1)
    chosen = rng.choice(WORDS, (len(keys), 12), p=share / share.sum())
    texts = pa.array([" ".join(f"w{word}" for word in row) for row in chosen.tolist()])
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), FLOATS)
    return pa.table([pa.array(keys, pa.int64()), texts, values], schema=_SCHEMA)


def _made(base_rows: int, gap: int, queries: int, directory: Path) -> Searched:
    """Write a table whose indexes cover none of ``gap`` merged generations, and one that is unmerged."""
    rng = np.random.default_rng(_SEED)
    uri = str(directory / "table")
    lance.write_dataset(_rows(np.arange(base_rows), rng), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="by_text", stem=False)
    lance.dataset(uri).create_index("vector", "IVF_PQ", name="by_vector", num_partitions=16, num_sub_vectors=8)
    base = BaseTable.open(uri, settings=UNSYNCED)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)], ["by_text", "by_vector"])
    with TableWriter.open(base) as writer:
        for number in range(gap + 1):
            if number == gap and gap:
                Table.open(uri, settings=UNSYNCED).run(MergeRequest())
            old = rng.choice(base_rows, _GENERATION_ROWS // 2, replace=False)
            new = base_rows + number * _GENERATION_ROWS + np.arange(_GENERATION_ROWS // 2)
            writer.put(_rows(np.concatenate([old, new]), rng))
            writer.flush()
    return _truth(uri, directory, queries, rng)


def _truth(uri: str, directory: Path, queries: int, rng: np.random.Generator) -> Searched:
    rows = Table.open(uri).to_arrow().replace_schema_metadata(None)
    ids = rows.column("id").to_numpy()
    stored = rows.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, FLOATS)
    vectors = stored[rng.choice(len(ids), queries)] + rng.normal(size=(queries, FLOATS)).astype(np.float32) / 4
    nearest = tuple(frozenset(ids[_nearest(stored, vector)].tolist()) for vector in vectors)
    texts = tuple(" ".join(f"w{word}" for word in rng.integers(0, WORDS // 4, 2).tolist()) for _ in range(queries))
    whole = lance.write_dataset(rows, directory / "whole")
    whole.create_scalar_index("text", "INVERTED", stem=False)
    scores = tuple(_scores(whole, text) for text in texts)
    return Searched(uri, vectors.astype(np.float32), nearest, texts, scores)


def _nearest(stored: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    return np.argsort(((stored - vector) ** 2).sum(axis=1), kind="stable")[:K]


def _scores(dataset: lance.LanceDataset, text: str) -> tuple[float, ...]:
    scanner = dataset.scanner(columns=["_score"], full_text_query=MatchQuery(text, "text"), limit=K)
    return tuple(scanner.to_table().column("_score").to_pylist())


def _share_of(found: Sequence[float], true: Sequence[float]) -> float:
    """Return which share of scores is among the true ones; the rows of equal scores are interchangeable."""
    left = list(true)
    hits = 0
    for score in found:
        match = next((each for each in left if abs(each - score) <= 1e-4 * each), None)
        if match is not None:
            left.remove(match)
            hits += 1
    return hits / len(true) if true else 1.0


def _timed(recalls: list[float]) -> dict[str, float]:
    return {"recall": sum(recalls) / len(recalls)}


@contextmanager
def vector_searches(case: Case, directory: Path, *, how: str) -> Iterator[Work]:
    """Search vectors in a view that is taken once, or in the base table as Lance does it."""
    made: Searched = case.data.get(directory)
    view = Table.open(made.uri).view()
    base = lance.dataset(made.uri)

    def found(vector: npt.NDArray[np.float32]) -> pa.Table:
        if how == "view":
            query = VectorQuery("vector", vector, k=K, columns=("id",), nprobes=_NPROBES, refine_factor=_REFINE)
            return view.vector_search(query)
        nearest = {"column": "vector", "q": vector, "k": K, "nprobes": _NPROBES, "refine_factor": _REFINE}
        return base.to_table(columns=["id"], nearest=nearest)

    results: list[float] = []

    def work() -> dict[str, float]:
        for vector, true in zip(made.vectors, made.nearest, strict=True):
            results.append(len(true & set(found(vector).column("id").to_pylist())) / K)
        return _timed(results)

    yield work
    if len(results) != len(made.vectors) or sum(results) == 0:
        raise AssertionError(f"an arm did not do its work: {len(results)} searches, {sum(results)} found")


@contextmanager
def text_searches(case: Case, directory: Path, *, how: str) -> Iterator[Work]:
    """Search texts in a view that is taken once, or in the base table as Lance does it."""
    made: Searched = case.data.get(directory)
    view = Table.open(made.uri).view()
    base = lance.dataset(made.uri)
    results: list[float] = []

    def work() -> dict[str, float]:
        for text, true in zip(made.texts, made.scores, strict=True):
            if how == "view":
                found = view.full_text_search(TextQuery("text", text, k=K, columns=("id",)))
                results.append(_share_of(found.column("_score").to_pylist(), true))
            else:
                results.append(_share_of(_scores(base, text), true))
        return _timed(results)

    yield work
    if len(results) != len(made.texts) or (how == "view" and min(results) < 1):
        raise AssertionError(f"an arm did not do its work: {len(results)} searches, worst {min(results, default=0)}")


def small_data() -> MadeOnce[Searched]:
    """Make the data of a case that is too small to measure."""
    return MadeOnce(partial(_made, 2_000, 1, 3))


def _cases(full: bool) -> list[Case]:
    rows, queries = (200_000, 50) if full else (20_000, 20)
    return [
        Case(f"gap of {gap}", queries, MadeOnce(partial(_made, rows, gap, queries)), size=float(gap))
        for gap in (0, 1, 4)
    ]


VECTOR_SEARCHES = Comparison(
    name="vector-search",
    question=f"nearest {K} of rows in clusters of {FLOATS} floats, IVF_PQ, one unmerged generation of "
    f"{_GENERATION_ROWS:,} rows and a gap of merged generations that the index lacks",
    operation="search",
    arms=(
        Arm("base", "Lance's own search of the base table: scans what its index lacks, misses what is unmerged",
            partial(vector_searches, how="base")),
        Arm("memwal", "flushed MemTables and their indexes stand in", partial(vector_searches, how="view")),
    ),
    cases=_cases,
    also=(_RECALL,),
)  # fmt: skip

TEXT_SEARCHES = Comparison(
    name="text-search",
    question=f"best {K} by BM25 for two words, one unmerged generation of {_GENERATION_ROWS:,} rows and a gap; found "
    "is what has the score that one index over all rows gives",
    operation="search",
    arms=(
        Arm(
            "base", "Lance's own search of the base table: misses what is unmerged", partial(text_searches, how="base")
        ),
        Arm("memwal", "global BM25; flushed MemTables and their indexes stand in", partial(text_searches, how="view")),
    ),
    cases=_cases,
    also=(_RECALL,),
)

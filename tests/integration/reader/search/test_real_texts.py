"""Searches of real texts and embeddings, half of them unmerged, find what brute force over the final state finds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA
from tests.integration.reader.search.real_texts import DIMENSION, embedded, sentences, tokens

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("text", pa.string()),
        pa.field("meaning", pa.list_(pa.float32(), DIMENSION)),
    ]
)
QUERIES = ("bushfire in New South Wales", "Palestinian security forces", "cricket", "the Prime Minister said")
K = 10


def _rows(names: Sequence[str], texts: Sequence[str], meanings: npt.NDArray[np.float32]) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(meanings.ravel()), DIMENSION)
    return pa.table([pa.array(names), pa.array(texts), vectors], schema=SCHEMA)


def _bm25(texts: Sequence[str], query: str) -> npt.NDArray[np.float64]:
    documents = [Counter(tokens(text)) for text in texts]
    lengths = np.array([sum(each.values()) for each in documents], dtype=np.float64)
    scores = np.zeros(len(texts))
    for token in dict.fromkeys(tokens(query)):
        counts = np.array([each[token] for each in documents], dtype=np.float64)
        having = int((counts > 0).sum())
        weight = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        scores += weight * counts * 2.2 / (counts + 1.2 * (0.25 + 0.75 * lengths / lengths.mean()))
    return scores


def _written(uri: str) -> dict[str, tuple[str, npt.NDArray[np.float32]]]:
    """Write the sentences in versions and return their final state.

    At first every text is its first words, with the meaning of a wrong row. Then rows get their whole text and own
    meaning: a part is merged without its indexes, a part stays unmerged; some rows are deleted, some are new.
    """
    found = sentences()
    names = [name for name, _ in found]
    texts = [text for _, text in found]
    meanings = embedded(texts)
    old = [" ".join(text.split()[:4]) for text in texts]
    wrong = np.roll(meanings, 1, axis=0)
    cut = len(names) * 9 // 10
    lance.write_dataset(_rows(names[:cut], old[:cut], wrong[:cut]), uri)
    lance.dataset(uri).create_scalar_index("text", "INVERTED", name="by_text", stem=False)
    lance.dataset(uri).create_index("meaning", "IVF_PQ", name="by_meaning", num_partitions=4, num_sub_vectors=5)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "name", base.state().field_ids, 2)], ["by_text", "by_meaning"])
    model = {name: (text, vector) for name, text, vector in zip(names[:cut], old[:cut], wrong[:cut], strict=True)}
    gone = names[5:cut:50]
    with TableWriter.open(base) as writer:
        for number, start in enumerate(range(0, len(names), len(names) // 4 + 1)):
            part = slice(start, start + len(names) // 4 + 1)
            writer.put(_rows(names[part], texts[part], meanings[part]))
            model |= dict(zip(names[part], zip(texts[part], meanings[part], strict=True), strict=True))
            writer.flush()
            if number == 1:
                Table.open(uri).run(MergeRequest())
        writer.delete(pa.table({"name": gone}))
        writer.flush()
    for name in gone:
        del model[name]
    return model


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[TableView, dict[str, tuple[str, npt.NDArray[np.float32]]]]:
    uri = str(tmp_path_factory.mktemp("texts") / "t")
    model = _written(uri)
    return Table.open(uri).view(), model


@pytest.mark.req("RD-52", "RD-55", "RD-56")
def test_searches_of_real_texts_equal_brute_force_over_the_final_state(written) -> None:
    view, model = written
    names, texts = list(model), [text for text, _ in model.values()]
    vectors = np.stack([vector for _, vector in model.values()])

    assert len(names) > 500
    assert [len(region.generations) for region in view.scan().plan.regions] == [3, 3]
    for query in QUERIES:
        scores = _bm25(texts, query)
        best = [row for row in np.argsort(-scores, kind="stable")[:K].tolist() if scores[row] > 0]
        found = view.full_text_search(TextQuery("text", query, k=K, columns=("name",)))
        assert found.column("_score").to_pylist() == pytest.approx(scores[best].tolist(), rel=1e-4)
        assert [scores[names.index(name)] for name in found.column("name").to_pylist()] == pytest.approx(
            scores[best].tolist(), rel=1e-9
        )
    for row in range(0, len(names), len(names) // 12):
        distances = ((vectors - vectors[row]) ** 2).sum(axis=1)
        nearest = VectorQuery("meaning", vectors[row], k=K, columns=("name",), nprobes=4, refine_factor=60)
        found = view.vector_search(nearest)
        assert found.column("_distance").to_pylist() == pytest.approx(np.sort(distances)[:K].tolist(), abs=1e-5)
        assert set(found.column("name").to_pylist()) <= model.keys()

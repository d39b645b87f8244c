"""An index and a scan that were asked the same give the same answers."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.quality.checks.answers import compare_answers
from memwal_core.quality.plan import IndexCheck


@pytest.mark.parametrize("length", [0.1, 3.0])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_nearest_rows_are_compared_in_the_metric_of_the_index(tmp_path: Path, metric: str, length: float) -> None:
    """A scan measured Euclidean distances, so that a sound index by inner product failed."""
    vectors = np.random.default_rng(7).normal(size=(300, 4)).astype(np.float32) * np.float32(length)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    dataset = lance.write_dataset(pa.table({"v": column}), str(tmp_path / "t"))
    dataset.create_index("v", "IVF_FLAT", name="by_v", num_partitions=2, metric=metric)
    answers = compare_answers(lance.dataset(str(tmp_path / "t")), IndexCheck("by_v", "v", True), 10)
    assert len(answers) == 10
    assert [each.indexed for each in answers] == [each.scanned for each in answers]


def test_the_smallest_integer_is_asked_for(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"k": [-(2**63), 0, 2**63 - 1]}), str(tmp_path / "t"))
    dataset.create_scalar_index("k", "BTREE", name="by_k")
    answers = compare_answers(lance.dataset(str(tmp_path / "t")), IndexCheck("by_k", "k", False), 10)
    assert [each.indexed.split()[0] for each in answers] == ["1", "1", "1"]
    assert [each.indexed for each in answers] == [each.scanned for each in answers]


@pytest.mark.parametrize(
    "values", [pa.array([["a"]] * 2), pa.array([[1.5]] * 2), pa.array([10**8] * 2, pa.int32()).cast(pa.date32())]
)
def test_values_that_have_no_sql_are_not_asked_for(tmp_path: Path, values: pa.Array) -> None:
    """A zone map on lists ended the whole check: Arrow tells no distinct lists. So did a date that Python lacks."""
    dataset = lance.write_dataset(pa.table({"k": values}), str(tmp_path / "t"))
    dataset.create_scalar_index("k", "ZONEMAP", name="by_k")
    assert compare_answers(lance.dataset(str(tmp_path / "t")), IndexCheck("by_k", "k", False), 10) == []


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_a_vector_that_is_infinitely_far_from_all_is_no_fault_of_an_index(tmp_path: Path, metric: str) -> None:
    vectors = np.random.default_rng(7).normal(size=(300, 4)).astype(np.float32)
    vectors[::3, 1] = np.inf
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    dataset = lance.write_dataset(pa.table({"v": column}), str(tmp_path / "t"))
    dataset.create_index("v", "IVF_FLAT", name="by_v", num_partitions=2, metric=metric)
    answers = compare_answers(lance.dataset(str(tmp_path / "t")), IndexCheck("by_v", "v", True), 10)
    assert [each.indexed for each in answers] == [each.scanned for each in answers]

"""Deletion vectors: what we pack is what Lance reads."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata

from memwal_core.format.deletion_vector import encode_deletion_vector

ROWS = 200_000
GENERATOR = np.random.default_rng(4)
CASES = {
    "first row": [0],
    "last row": [ROWS - 1],
    "both sides of a chunk": [65_535, 65_536],
    "as many as fit an array": list(range(4_096)),
    "one more than fits an array": list(range(4_097)),
    "a whole chunk": list(range(65_536, 131_072)),
    "sparse": sorted(GENERATOR.choice(ROWS, 500, replace=False).tolist()),
    "dense": sorted(GENERATOR.choice(ROWS, 150_000, replace=False).tolist()),
    "all but one": list(range(1, ROWS)),
}


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"n": np.arange(ROWS)}), str(tmp_path / "t"))


@pytest.mark.parametrize("deleted", CASES.values(), ids=CASES)
def test_lance_hides_exactly_the_rows_that_were_packed(dataset, deleted):
    flags = np.zeros(ROWS, dtype=bool)
    flags[deleted] = True
    (fragment,) = dataset.get_fragments()
    number = len(deleted) * 1_000_003 + deleted[0]
    directory = Path(dataset.uri, "_deletions")
    directory.mkdir(exist_ok=True)
    (directory / f"{fragment.fragment_id}-1-{number}.bin").write_bytes(encode_deletion_vector(flags))
    values = json.loads(json.dumps(fragment.metadata.to_json()))
    values["deletion_file"] = {
        "read_version": 1, "id": number, "file_type": "bitmap", "num_deleted_rows": len(deleted), "base_id": None,
    }  # fmt: skip
    operation = lance.LanceOperation.Delete([FragmentMetadata.from_json(json.dumps(values))], [], "packed by us")

    made = lance.LanceDataset.commit(dataset.uri, operation, read_version=1)

    assert made.to_table()["n"].to_pylist() == np.flatnonzero(~flags).tolist()
    assert made.count_rows() == ROWS - len(deleted)

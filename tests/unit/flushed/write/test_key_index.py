"""Our files of the key index are those that pylance writes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from lance.lance import _write_pk_sidecar

from memwal_core.deduplicate import key_order
from memwal_core.flushed.write.key_index import integer_key_index

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def _read(path: Path) -> tuple[pa.Schema, tuple[int, int], pa.Table]:
    reader = LanceFileReader(str(path))
    found = reader.metadata()
    return found.schema, (found.major_version, found.minor_version), reader.read_all().to_table()


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
@pytest.mark.parametrize("rows", [1, 90, 8192, 20_000])
def test_key_index_of_integers_equals_the_one_of_pylance(kind: pa.DataType, rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(rows)
    limits = np.iinfo(kind.to_pandas_dtype())
    values = rng.integers(limits.min, limits.max, rows, kind.to_pandas_dtype(), endpoint=True)
    values[rows // 2] = values[0]  # Keys come twice, too.
    keys = pa.table({"id": pa.chunked_array([values[: rows // 3], values[rows // 3 :]], kind)})
    _write_pk_sidecar(str(tmp_path), keys, ["id"])

    order = key_order(keys, ["id"])
    assert order is not None
    for name, data in integer_key_index(keys.column("id"), order).items():
        ours = tmp_path / name
        ours.write_bytes(data)
        (schema, version, table), expected = _read(ours), _read(tmp_path / "_pk_index" / name)
        assert schema.equals(expected[0], check_metadata=True)
        assert version == expected[1]
        if name == "page_data.lance":  # Which of equal keys comes first is pylance's to choose.
            table, expected_table = (
                t.sort_by([("values", "ascending"), ("ids", "ascending")]) for t in (table, expected[2])
            )
        else:
            expected_table = expected[2]
        assert table.equals(expected_table)
    assert {path.name for path in (tmp_path / "_pk_index").iterdir()} == {"page_data.lance", "page_lookup.lance"}

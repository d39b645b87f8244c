"""What the distances of a vector index depend on, so that it can be shown not to have changed."""

from __future__ import annotations

import hashlib
import json

import lance
import numpy as np

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.format.index_file import IndexFile
from memwal_core.format.lance_field import field_path
from memwal_core.format.paths import INDEX_DIRECTORY

_QUANTIZER_FILE = "auxiliary.idx"
_QUANTIZER_KEY = b"storage_metadata"
CODEBOOK_KEY = "codebook_position"
_LAYOUT_KEY = "transposed"
"""How the codes of rows lie in the file, which a segment that was built apart has in another way."""


def vector_model_digest(table: TableReader, version: int, name: str) -> str:
    """Return a digest of the centroids and quantizers of a trained vector index."""
    dataset = table.dataset(version)
    with translated("read a vector index", table.uri, index=name, version=version):
        index = next(index for index in dataset.describe_indices() if index.name == name)
        centroids = _centroids(dataset, index)
        quantizers = {_quantizer_digest(table, segment.uuid) for segment in index.segments}
    digest = hashlib.sha256(centroids)
    for quantizer in sorted(quantizers):
        digest.update(quantizer)
    return digest.hexdigest()


def _centroids(dataset: lance.LanceDataset, index: lance.IndexDescription) -> bytes:
    if len(field_path(dataset.lance_schema.fields(), int(index.fields[0]))) == 1:
        found = dataset.get_ivf_model(index.name).centroids.flatten()
        return bytes(found.to_numpy(zero_copy_only=False).tobytes())
    # For a field inside of a column Lance looks for a column of the field's own name; the statistics do not.
    segments = dataset.stats.index_stats(index.name)["indices"]
    return b"".join(sorted({np.asarray(each["centroids"], np.float32).tobytes() for each in segments}))


def open_quantizer(table: TableReader, segment: str) -> tuple[IndexFile, list[str]]:
    """Return the file of a segment's quantizer, and its parameters, each a text of JSON."""
    file = IndexFile(table.store, f"{INDEX_DIRECTORY}/{segment}/{_QUANTIZER_FILE}")
    return file, json.loads(file.metadata(_QUANTIZER_KEY))


def _quantizer_digest(table: TableReader, segment: str) -> bytes:
    file, texts = open_quantizer(table, segment)
    digest = hashlib.sha256()
    for text in texts:
        parameters = json.loads(text, parse_float=_as_float32)
        codebook = parameters.pop(CODEBOOK_KEY, None)
        parameters.pop(_LAYOUT_KEY, None)
        digest.update(json.dumps(parameters, sort_keys=True).encode())
        if codebook is not None:
            digest.update(file.buffer(codebook))
    return digest.digest()


def _as_float32(text: str) -> float:
    """Return a number as Lance computes with it; its text changes in the last digit when Lance copies it."""
    return float(np.float32(text))

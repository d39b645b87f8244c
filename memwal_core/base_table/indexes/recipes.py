"""How to rebuild an index of the base table over other rows, so that results compare.

A flushed MemTable's index must use the base index's tokenizer, centroids and codebook: with its own
training, its distances and scores would mean something else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table.indexes.text_index import TEXT_INDEX, TEXT_KIND, read_tokenizer
from memwal_core.base_table.indexes.untrained import is_trained
from memwal_core.base_table.indexes.vector_model import CODEBOOK_KEY, open_quantizer
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.format.memwal_index import is_internal_index
from memwal_core.format.paths import INDEX_DIRECTORY

_log = logging.getLogger(__name__)

_SCALAR_KINDS = {
    "BTree": "BTREE",
    "Bitmap": "BITMAP",
    "LabelList": "LABEL_LIST",
    "NGram": "NGRAM",
    "ZoneMap": "ZONEMAP",
    "BloomFilter": "BLOOMFILTER",
    TEXT_INDEX: TEXT_KIND,
}
_WITH_POSITION = "with_position"
_IVF = "IVF_"
_WITH_CODEBOOK = frozenset({"IVF_PQ", "IVF_HNSW_PQ"})
_UNQUANTIZED = "IVF_FLAT"
_CODEBOOK_ENTRIES = 256


@dataclass(frozen=True, slots=True, eq=False)
class IndexRecipe:
    """How to build one index over other rows, under the base index's name.

    Attributes:
        is_vector: Whether distances come from it.
        parameters: Tokenizer, or metric, partitions, centroids and codebook.
    """

    name: str
    field_id: int
    kind: str
    is_vector: bool
    parameters: Mapping[str, Any] = field(repr=False)


def index_recipes(table: TableReader, version: int, names: Sequence[str] | None) -> tuple[IndexRecipe, ...]:
    """Read the recipes of the named indexes; of all but the primary key's and Lance's own if None.

    Unknown names and kinds that cannot be rebuilt are left out with a warning, and so are indexes over several
    columns or over a field inside of one. So is an untrained vector index, until it is trained: queries scan the base
    table for it, and there are no distances to match. Scalar and RaBitQ quantizers cannot be handed on; their recipe
    has the same centroids and exact distances, which the base index only approximates.
    """
    dataset = table.dataset(version)
    key = table.state(version).primary_key.field_ids
    columns = {field.id() for field in dataset.lance_schema.fields()}
    fragments = frozenset(dataset.fragment_ids())
    recipes = []
    with translated("read the indexes to maintain", table.uri, version=version):
        for index in dataset.describe_indices():
            fields = tuple(index.fields)
            is_internal = is_internal_index(index.name) or fields == tuple(key)
            if is_internal if names is None else index.name not in names:
                continue
            if not is_trained(table.store, index, fragments):
                _log.info("index is not trained yet, so MemTables do not maintain it [index=%s]", index.name)
                continue
            recipe = _recipe(table, dataset, index) if len(fields) == 1 and columns.issuperset(fields) else None
            if recipe is None:
                _log.warning(
                    "index cannot be maintained in MemTables [index=%s, kind=%s]", index.name, index.index_type
                )
            else:
                recipes.append(recipe)
    return tuple(recipes)


def build_index(table: lance.LanceDataset, recipe: IndexRecipe, column: str) -> None:
    """Build an index by its recipe on another table, changed in place.

    The column must hold at least one value that is not NULL.
    """
    if recipe.is_vector:
        table.create_index(column, recipe.kind, name=recipe.name, **recipe.parameters)
    else:
        kind: Any = recipe.kind  # pylance types it as a choice of literals.
        table.create_scalar_index(column, kind, name=recipe.name, **recipe.parameters)


def _recipe(table: TableReader, dataset: lance.LanceDataset, index: lance.IndexDescription) -> IndexRecipe | None:
    kind = str(index.index_type)
    field_id = int(index.fields[0])
    if kind.startswith(_IVF):
        return _vector_recipe(table, dataset, index, kind)
    scalar = _SCALAR_KINDS.get(kind)
    if scalar is None:
        return None
    return IndexRecipe(
        index.name, field_id, scalar, False, _text_parameters(table, index) if scalar == TEXT_KIND else {}
    )


def _text_parameters(table: TableReader, index: lance.IndexDescription) -> dict[str, Any]:
    has_positions = (index.details or {}).get(_WITH_POSITION)
    tokenizer = read_tokenizer(table.store, index, INDEX_DIRECTORY)
    return tokenizer | ({} if has_positions is None else {_WITH_POSITION: has_positions})


def _vector_recipe(
    table: TableReader, dataset: lance.LanceDataset, index: lance.IndexDescription, kind: str
) -> IndexRecipe:
    centroids = dataset.get_ivf_model(index.name).centroids
    vectors = centroids.flatten().to_numpy(zero_copy_only=False).reshape(len(centroids), -1).astype(np.float32)
    parameters: dict[str, Any] = {
        "metric": str(index.details["metric_type"]).lower(),
        "num_partitions": len(vectors),
        "ivf_centroids": vectors,
    }
    codebook = _codebook(table, index.segments[0].uuid) if kind in _WITH_CODEBOOK else None
    if codebook is None:
        return IndexRecipe(index.name, int(index.fields[0]), _UNQUANTIZED, True, parameters)
    parameters |= {"num_sub_vectors": len(codebook), "pq_codebook": codebook}
    hnsw = index.details.get("hnsw")
    if hnsw:
        parameters |= {"m": hnsw["max_connections"], "ef_construction": hnsw["construction_ef"]}
    return IndexRecipe(index.name, int(index.fields[0]), kind, True, parameters)


def _codebook(table: TableReader, segment: str) -> npt.NDArray[np.float32] | None:
    """Return a product quantizer's codebook as (sub-vectors, entries, values); None if it has another form."""
    file, texts = open_quantizer(table, segment)
    facts = json.loads(texts[0])
    sub_vectors, dimension = int(facts["num_sub_vectors"]), int(facts["dimension"])
    data = file.tensor(facts[CODEBOOK_KEY])
    if len(data) != _CODEBOOK_ENTRIES * dimension * np.dtype(np.float32).itemsize:
        return None
    values = np.frombuffer(data, np.float32)
    return values.reshape(sub_vectors, _CODEBOOK_ENTRIES, dimension // sub_vectors)


def has_values(table: lance.LanceDataset, column: str) -> bool:
    """Return whether a column has a value that is not NULL; an index over none cannot be built."""
    found: pa.Table = table.to_table(columns=[column], filter=f"`{column}` IS NOT NULL", limit=1)
    return bool(found.num_rows)

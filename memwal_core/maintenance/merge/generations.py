"""Opening flushed MemTables for the merge."""

from __future__ import annotations

import math
from collections.abc import Mapping

import lance

from memwal_core.base_table import translated
from memwal_core.errors import ObjectNotFoundError
from memwal_core.maintenance.merge.columns import MergeTarget, SchemaMismatch, map_columns
from memwal_core.maintenance.merge.plan import Defect, SurveyedGeneration
from memwal_core.manifest.model import FlushedGeneration


def open_generation(uri: str, storage_options: Mapping[str, str]) -> lance.LanceDataset:
    """Open a flushed MemTable's dataset at its newest version.

    Raises:
        ObjectNotFoundError: No dataset is there.
        UnavailableError: Storage failed. Try again.
    """
    with translated("open a flushed MemTable", uri):
        return lance.dataset(uri, storage_options=dict(storage_options) or None)


def inspect_generation(
    recorded: FlushedGeneration, uri: str, target: MergeTarget, storage_options: Mapping[str, str]
) -> SurveyedGeneration:
    """Find out a generation's size and whether it can be merged; reads metadata only.

    Args:
        recorded: Its entry in the region manifest.
        uri: Its address.
        target: The base table it would be merged into.
        storage_options: For pylance.

    Raises:
        UnavailableError: Storage failed.
    """
    try:
        dataset = open_generation(uri, storage_options)
    except ObjectNotFoundError as error:
        return SurveyedGeneration(
            recorded.generation,
            uri,
            0,
            0,
            defect=Defect.MISSING,
            evidence=f"no dataset at {uri}: {error.facts.get('reason')}",
        )
    rows, file_bytes = _measure(dataset)
    size_bytes = recorded.in_memory_bytes if recorded.in_memory_bytes is not None else file_bytes
    mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch):
        return SurveyedGeneration(
            recorded.generation, uri, size_bytes, rows, defect=Defect.SCHEMA, evidence=mapping.reason
        )
    return SurveyedGeneration(recorded.generation, uri, size_bytes, rows)


def _measure(dataset: lance.LanceDataset) -> tuple[int, int]:
    """Return physical rows and bytes: the files' size, or what fixed-width columns take, if that is more."""
    rows = file_bytes = 0
    for fragment in dataset.get_fragments():
        rows += fragment.physical_rows
        file_bytes += sum(data_file.file_size_bytes or 0 for data_file in fragment.metadata.files)
    widths = [_bits(field.type) for field in dataset.schema]
    return rows, max(file_bytes, math.ceil(rows * sum(widths) / 8))


def _bits(kind: object) -> int:
    try:
        return int(getattr(kind, "bit_width", 0))
    except ValueError:  # pyarrow: the type has no fixed width
        return 0

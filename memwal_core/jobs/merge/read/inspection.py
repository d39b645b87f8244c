"""Examine flushed MemTables before a merge."""

from __future__ import annotations

import math
from collections.abc import Callable

import lance

from memwal_core.base_table import translated
from memwal_core.base_table.history.fields import Renamings
from memwal_core.errors import ObjectNotFoundError
from memwal_core.flushed.read import ColumnMapping, MergeTarget, SchemaMismatch, map_columns
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.region_manifest.model import FlushedGeneration
from memwal_core.jobs.merge.plan import Defect, SurveyedGeneration


def inspect_generation(
    recorded: FlushedGeneration,
    uri: str,
    target: MergeTarget,
    look: Callable[[str], lance.LanceDataset],
    renamings: Renamings,
) -> SurveyedGeneration:
    """Find out a generation's size and whether it can be merged; reads metadata and tombstone marks only."""
    try:
        dataset = look(uri)
    except ObjectNotFoundError as error:
        return SurveyedGeneration(
            recorded.generation,
            uri,
            0,
            0,
            defect=Defect.MISSING,
            evidence=f"there is no dataset at {uri}: {error.facts.get('reason')}",
        )
    rows, file_bytes = _measure(dataset)
    size_bytes = recorded.in_memory_bytes if recorded.in_memory_bytes is not None else file_bytes
    mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    reason = mapping.reason if isinstance(mapping, SchemaMismatch) else _unproven(mapping, renamings)
    if isinstance(mapping, SchemaMismatch) or reason:
        return SurveyedGeneration(recorded.generation, uri, size_bytes, rows, defect=Defect.SCHEMA, evidence=reason)
    tombstones = _count_tombstones(dataset, uri) if mapping.has_tombstones else 0
    return SurveyedGeneration(
        recorded.generation, uri, size_bytes, rows, tombstones=tombstones, missing=mapping.missing
    )


def _count_tombstones(dataset: lance.LanceDataset, uri: str) -> int:
    try:
        with translated("count tombstones", uri):
            return int(dataset.count_rows(TOMBSTONE_COLUMN))
    except ObjectNotFoundError:
        return 0  # A data file is lost; reading the rows reports that.


def _unproven(mapping: ColumnMapping, renamings: Renamings) -> str:
    doubtful = renamings.unproven(mapping.renamed, mapping.replaced)
    if not doubtful:
        return ""
    return (
        f"columns {doubtful} have other names or field ids in the base table, and no retained version proves that they "
        "were renamed or replaced: other columns may have their ids since they were dropped, or the table overwritten"
    )


def _measure(dataset: lance.LanceDataset) -> tuple[int, int]:
    """Return physical rows, and bytes: the files' size, or what fixed-width columns take if that is more."""
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

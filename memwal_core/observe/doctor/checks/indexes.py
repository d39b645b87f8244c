"""Indexes of the base table, as far as MemWAL depends on them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding, Severity


def partitions_are_balanced(seen: Examination) -> Iterator[Finding]:
    """The partitions of a vector index are of similar size.

    The finding only proposes a migration, because centroids never change in place: MemTables use the same ones.
    """
    for index in seen.indexes.partitions:
        if index.imbalance > seen.retrain_imbalance:
            yield Finding(
                "index-imbalanced",
                Severity.INFO,
                "the partitions of a vector index differ widely in size",
                {
                    "subject": index.name,
                    "index": index.name,
                    "imbalance": None if math.isinf(index.imbalance) else round(index.imbalance, 2),
                    "largest": max(index.sizes),
                    "smallest": min(index.sizes),
                    "threshold": seen.retrain_imbalance,
                },
                "no rows are at risk; searches read more than they need, or find less",
                "retrain by a migration: build the index on a new table, and enable MemWAL there afterwards",
            )


def indexes_can_be_read(seen: Examination) -> Iterator[Finding]:
    """Every index can be loaded: of a deep look its statistics, where contents are asked for all of it."""
    for name, problems in seen.indexes.problems:
        yield Finding(
            "index-file-damaged",
            Severity.WARNING,
            "files of an index are missing or damaged",
            {"subject": name, "index": name, "files": {each.path: each.cause for each in problems}},
            "no rows are at risk; searches with the index, lookups of keys and the next catch-up fail, or end their "
            "process",
            "drop the index with Lance (`LanceDataset.drop_index`) and create it again: rows have everything it needs",
        )

"""Indexes of the base table, as far as MemWAL depends on them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from memwal_core.maintenance.doctor.examination import Examination
from memwal_core.maintenance.doctor.findings import Finding, Severity


def partitions_are_balanced(seen: Examination) -> Iterator[Finding]:
    """The partitions of a vector index are of similar size.

    Only a proposal: centroids never change in place, because those of MemTables are the same.
    """
    for index in seen.partitions:
        if index.imbalance > seen.retrain_imbalance:
            yield Finding(
                "index-imbalanced",
                Severity.INFO,
                "the partitions of a vector index differ much in size",
                {
                    "subject": index.name,
                    "index": index.name,
                    "imbalance": None if math.isinf(index.imbalance) else round(index.imbalance, 2),
                    "largest": max(index.sizes),
                    "smallest": min(index.sizes),
                    "threshold": seen.retrain_imbalance,
                },
                "none for rows; searches read more than they need, or find less",
                "retrain by a migration: build the index on a new table, with MemWAL enabled after it",
            )

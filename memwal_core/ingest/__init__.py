"""Writing batches of rows through regions exactly once, however many processes try.

State: what is known about batches, below ``_mem_wal/_batches`` (docs/format.md). A batch belongs to
a stream and has an id in it. Its rows are divided by region; the rows of one region are a share,
written by one task. Whoever has claimed a region looks at the records *after* the claim: a share that is
recorded is not written again, and an attempt that was overtaken is fenced by the region's epoch.
So repeated, speculative and forgotten attempts neither double rows nor bring old values back.

Knows nothing of Spark: ``memwal_core.spark.ingest`` runs this on executors. May import maintenance
and everything below it.
"""

from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.intake import Examined, RowIntake, RowProblem
from memwal_core.ingest.records import BatchDone, BatchRecords, ShareDone
from memwal_core.ingest.report import IngestReport, ShareReport, ingest_facts
from memwal_core.ingest.share import RegionShare, ShareOutcome, write_share

__all__ = [
    "BatchDone",
    "BatchId",
    "BatchRecords",
    "Examined",
    "IngestReport",
    "RegionRows",
    "RegionShare",
    "RowIntake",
    "RowProblem",
    "ShareDone",
    "ShareOutcome",
    "ShareReport",
    "ingest_facts",
    "write_share",
]

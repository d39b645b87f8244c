"""Everything that can be compared, in the order in which it is run: what matters most first, the slowest last."""

from __future__ import annotations

from bench.floor import MERGE_FLOOR, WAL_FLOOR
from bench.flushes import FLUSHES
from bench.growth import GROWTHS
from bench.harness import Comparison
from bench.loop import LOOP
from bench.maintenance import GC_PLANS, MERGE_MEMORY, SNAPSHOT_REQUESTS, SNAPSHOTS
from bench.merge import MERGES
from bench.puts import PUTS
from bench.puts_together import PUTS_BY_DEFAULT, PUTS_TOGETHER
from bench.reads import LOOKUPS, SCAN_MEMORY, SCANS
from bench.recovery import BUFFERED_MEMORY, RECOVERY
from bench.searches import TEXT_SEARCHES, VECTOR_SEARCHES
from bench.spark_merge import SPARK, STRATEGIES
from bench.spark_read import SPARK_READS

COMPARISONS: dict[str, Comparison] = {
    comparison.name: comparison
    for comparison in (
        LOOP,
        WAL_FLOOR,
        MERGE_FLOOR,
        PUTS,
        PUTS_TOGETHER,
        PUTS_BY_DEFAULT,
        FLUSHES,
        RECOVERY,
        SCANS,
        LOOKUPS,
        VECTOR_SEARCHES,
        TEXT_SEARCHES,
        *GROWTHS,
        SNAPSHOTS,
        SNAPSHOT_REQUESTS,
        GC_PLANS,
        MERGE_MEMORY,
        BUFFERED_MEMORY,
        SCAN_MEMORY,
        MERGES,
        SPARK,
        SPARK_READS,
        STRATEGIES,
    )
}

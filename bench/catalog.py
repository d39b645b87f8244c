"""Everything that can be compared, in the order in which it is run: what matters most first, the slowest last."""

from __future__ import annotations

from bench.comparisons.floor import MERGE_FLOOR, WAL_FLOOR
from bench.comparisons.growth import GROWTHS
from bench.comparisons.large_bases import KEY_SEARCHES, LARGE_LOOKUPS, LARGE_MERGES
from bench.comparisons.latency import MERGE_LATENCY
from bench.comparisons.loop import LOOP
from bench.comparisons.maintenance import GC_PLANS, MERGE_MEMORY, SNAPSHOT_REQUESTS, SNAPSHOTS
from bench.comparisons.merge import MERGES
from bench.comparisons.reads import LOOKUPS, SCAN_MEMORY, SCANS
from bench.comparisons.searches import TEXT_SEARCHES, VECTOR_SEARCHES
from bench.comparisons.spark_merge import SPARK, STRATEGIES
from bench.comparisons.spark_read import SPARK_READS
from bench.comparisons.writing.flushes import FLUSHES
from bench.comparisons.writing.puts import PUT_LATENCY, PUTS
from bench.comparisons.writing.puts_together import PUTS_BY_DEFAULT, PUTS_TOGETHER
from bench.comparisons.writing.recovery import BUFFERED_MEMORY, RECOVERY
from bench.harness import Comparison
from bench.pinned.jobs import PINNED

COMPARISONS: dict[str, Comparison] = {
    comparison.name: comparison
    for comparison in (
        LOOP,
        WAL_FLOOR,
        MERGE_FLOOR,
        PUTS,
        PUTS_TOGETHER,
        PUTS_BY_DEFAULT,
        PUT_LATENCY,
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
        LARGE_MERGES,
        KEY_SEARCHES,
        LARGE_LOOKUPS,
        MERGE_LATENCY,
        SPARK,
        SPARK_READS,
        STRATEGIES,
        PINNED,
    )
}

"""The signals that an engineer on call may meet, each with its page in ``docs/runbooks``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType


class Signal(StrEnum):
    """What can be wrong with a table."""

    PENDING_GENERATIONS = "pending_generations"
    OLDEST_UNMERGED = "oldest_unmerged"
    DRAIN_TIME = "drain_time"
    WAL_LAG = "wal_lag"
    EPOCH_CHANGES = "epoch_changes"
    GENERATION_HOLE = "generation_hole"
    PROGRESS_LOST = "progress_lost"
    CORRUPT_MANIFEST = "corrupt_manifest"
    INDEX_LAG = "index_lag"
    GARBAGE = "garbage"
    KEPT = "kept"
    JOB_FAILURES = "job_failures"
    STUCK_JOB = "stuck_job"
    CHECK_FAILED = "check_failed"
    QUARANTINED_GENERATIONS = "quarantined_generations"
    DUPLICATE_KEYS = "duplicate_keys"
    BASE_FRAGMENTS = "base_fragments"
    BASE_VERSIONS = "base_versions"
    SNAPSHOT_AGE = "snapshot_age"
    PEAK_MEMORY = "peak_memory"


@dataclass(frozen=True, slots=True)
class SignalFacts:
    """What a signal is.

    Attributes:
        page: Its runbook, relative to the repository.
        findings: The findings of ``doctor`` that it counts; none if it is measured.
    """

    page: str
    unit: str
    meaning: str
    risk: str
    remedy: str
    findings: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of its runbook, and of the finding that it becomes."""
        return PurePosixPath(self.page).stem


def _page(name: str) -> str:
    return f"docs/runbooks/{name}.md"


def _counts(name: str, meaning: str, *findings: str) -> SignalFacts:
    risk, remedy = "rows may be lost, and no merge goes on there", f"follow {_page(name)}"
    return SignalFacts(_page(name), "findings", meaning, risk, remedy, frozenset(findings))


SIGNALS: Mapping[Signal, SignalFacts] = MappingProxyType(
    {
        Signal.PENDING_GENERATIONS: SignalFacts(
            _page("pending-generations"),
            "generations",
            "flushed MemTables of one region that wait for a merge",
            "reads of the region become slower with each of them",
            "run `memwal merge`",
        ),
        Signal.OLDEST_UNMERGED: SignalFacts(
            _page("oldest-unmerged"),
            "s",
            "age of the oldest flushed MemTable that waits for a merge",
            "readers of the base table alone see old rows",
            "run `memwal merge`",
        ),
        Signal.DRAIN_TIME: SignalFacts(
            _page("drain-time"),
            "s",
            "time that merging what waits would take at the rate of the last merges",
            "merges fall behind the writers",
            "merge more often, or on Spark",
        ),
        Signal.WAL_LAG: SignalFacts(
            _page("wal-lag"),
            "s",
            "age of the oldest WAL entry with rows that is not flushed",
            "the rows are durable but invisible to the merge; each restart of the writer replays them",
            "find out whether the region's writer runs and why its flush fails; if it is gone, run `memwal flush`",
        ),
        Signal.EPOCH_CHANGES: SignalFacts(
            _page("epoch-changes"),
            "changes",
            "claims in the last hour that took a region from a writer that had not released it",
            "two writers fight for the region, and rows arrive slowly or not at all",
            "find the writers of the region and stop all but one",
        ),
        Signal.GENERATION_HOLE: _counts(
            "generation-hole",
            "generations that should be recorded, or be there in full, and are not",
            "generation-hole",
            "generation-missing",
            "generation-damaged",
        ),
        Signal.PROGRESS_LOST: _counts(
            "progress-lost",
            "regions whose merge progress contradicts their manifest or their past, or a MemWAL index that is gone",
            "index-gone",
            "progress-ahead",
            "progress-went-back",
        ),
        Signal.CORRUPT_MANIFEST: _counts(
            "corrupt-region-manifest",
            "manifests that are missing, cannot be read, or contradict themselves",
            "table-unreadable",
            "manifest-unreadable",
            "manifest-missing",
            "manifest-version-hole",
            "manifest-went-back",
        ),
        Signal.INDEX_LAG: SignalFacts(
            _page("index-lag"),
            "generations",
            "merged generations of one region that an index does not cover",
            "searches read unindexed rows, and flushed MemTables stay",
            "run `memwal catchup`",
        ),
        Signal.GARBAGE: SignalFacts(
            _page("garbage"),
            "share",
            "bytes that nothing needs over the bytes of the table",
            "no rows are at risk; the space costs money",
            "run `memwal gc --yes`",
        ),
        Signal.KEPT: SignalFacts(
            _page("kept"),
            "share",
            "bytes older than twice the history that stay until somebody acts, over the bytes of the table",
            "no rows are at risk; the space grows and costs money",
            "look at what keeps them with `memwal gc`",
        ),
        Signal.JOB_FAILURES: SignalFacts(
            _page("job-failures"),
            "runs",
            "failures of one job in a row",
            "its work piles up, and the job pauses between its attempts",
            "look at `memwal history` for the error",
        ),
        Signal.STUCK_JOB: SignalFacts(
            _page("stuck-job"),
            "s",
            "time since a job in progress, or one that died, renewed its lease",
            "its work piles up",
            "look at its log; if the process died, run `memwal doctor --deep`, which names a file that ends one",
        ),
        Signal.CHECK_FAILED: SignalFacts(
            _page("check-failed"),
            "checks",
            "checks of the base table that failed in the newest run",
            "rows may be wrong or lost",
            "look at `memwal checks` for what failed, and stop garbage collection",
        ),
        Signal.QUARANTINED_GENERATIONS: SignalFacts(
            _page("quarantined-generations"),
            "generations",
            "flushed MemTables that failed their audit and wait for a person",
            "neither they nor later generations of the region are merged",
            "look at `memwal checks` for the reasons",
        ),
        Signal.DUPLICATE_KEYS: SignalFacts(
            _page("duplicate-keys"),
            "rows",
            "rows of the base table whose primary key also occurs in another row",
            "queries return old rows beside new ones",
            "stop merging and find out who wrote the rows",
        ),
        Signal.BASE_FRAGMENTS: SignalFacts(
            _page("base-fragments"),
            "fragments",
            "fragments of the base table that are smaller than a rewritten one",
            "scans and merges become slower",
            "run `memwal compact`",
        ),
        Signal.BASE_VERSIONS: SignalFacts(
            _page("base-versions"),
            "s",
            "age of the oldest version of the base table that is older than the retention and that nothing needs",
            "versions and the files that only they need pile up",
            "run `memwal compact --remove-versions`",
        ),
        Signal.SNAPSHOT_AGE: SignalFacts(
            _page("snapshot-age"),
            "s",
            "time since a region first differed from the region snapshot",
            "readers that plan from it miss what was flushed since",
            "run `memwal snapshot`",
        ),
        Signal.PEAK_MEMORY: SignalFacts(
            _page("peak-memory"),
            "share",
            "peak memory of a job's process over its limit, in its last run",
            "the job is killed in the middle of its work",
            "give the job more memory or less work at once",
        ),
    }
)

SPACE_SIGNALS = frozenset({Signal.GARBAGE, Signal.KEPT})
"""Those that take a listing of every object."""

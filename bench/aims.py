"""What the project wants to reach, judged from results, and what stands in the way where it is missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bench.comparisons.large_bases import BY_SCAN, LARGEST_BASE, SEARCH
from bench.comparisons.latency import FRAGMENTS
from bench.comparisons.loop import DELTA_ARM
from bench.comparisons.maintenance import MERGE_MIB
from bench.comparisons.writing.flushes import AMPLIFICATION
from bench.comparisons.writing.puts import LATENCY_S, TAIL
from bench.harness import Spread, spread
from bench.isolated import LARGEST
from bench.pinned.cores import APART, IN_PROCESS, ONE, TWO
from bench.pinned.jobs import LARGE, SMALL

LINEAR = 1.1
"""Exponents up to here count as linear: that much is the noise of few points."""

PROCESS_MIB = 1_536
"""What the platform allows any process of a merge, in MiB."""

SMALL_MERGE_MIB = 512
"""What a merge in small commits may take, imports included, in MiB."""


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim: an arm takes at most so much of another, or at most so much.

    Attributes:
        text: What is wanted.
        comparison: Its name.
        arm: The arm that is judged.
        against: The arm that it is compared with; None for a bound in the unit of the measure.
        limit: Highest ratio, or the bound.
        obstacle: What stands in the way, shown only if it is missed.
        case: The case counts whose name contains this; all of them if empty.
        against_case: The part of its name that the case of ``against`` has instead; the same case if empty.
        measure: One of the further values of the comparison, instead of what its ratios are about.
        added: What counts is by how much the arm exceeds the other, instead of the ratio.
    """

    text: str
    comparison: str
    arm: str
    against: str | None
    limit: float
    obstacle: str
    case: str = ""
    against_case: str = ""
    measure: str = ""
    added: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """An aim and one case of the results.

    Attributes:
        aim: The aim.
        case: The case.
        ratio: Its ratios, or its values if the aim is a bound; None if an arm has no samples.
    """

    aim: Aim
    case: str
    ratio: Spread | None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.ratio is None:
            return "not measured"
        if self.ratio.median <= self.aim.limit:
            return "reached"
        return f"missed by {self.ratio.median / self.aim.limit:.2f} times"


_START = (
    "A merge of this size takes the driver less time than a task takes to begin. A session that runs already costs "
    "little, for passes below `merge.executors_min_bytes` stay with the driver; `spark-submit` pays for the start of a "
    "Java process, a session and the imports every time. Fewer and larger merges are the way out: the start does not "
    "grow with the work."
)

AIMS: tuple[Aim, ...] = (
    Aim(
        "a durable put of 1,000 rows takes at most 1.5 times the synced write of a plain file",
        "wal-floor",
        "memwal",
        "fsynced file",
        1.5,
        "A put also builds and checks the batch, encodes it as a Lance file, and links the file under its final name "
        "so that no rival's entry can be overwritten; the plain file does one write and two syncs.",
        case="1,000 rows",
    ),
    Aim(
        "the whole loop takes at most a fifth of `merge_insert` per batch (merge in the same process)",
        "loop",
        "memwal",
        "merge_insert",
        1 / 5,
        "`merge_insert` per batch reads the base table's keys once per batch, so its cost grows with base rows times "
        "batches; on a small base there is little to save, and our puts are synced while its commits are not.",
    ),
    Aim(
        "the whole loop takes at most a fifth of `merge_insert` per batch (merge through a running Spark session)",
        "loop",
        "memwal+spark",
        "merge_insert",
        1 / 5,
        _START,
    ),
    Aim(
        "the whole loop takes at most a fifth of `merge_insert` per batch (merge by a cold `spark-submit`)",
        "loop",
        "memwal+spark-submit",
        "merge_insert",
        1 / 5,
        _START,
    ),
    Aim(
        "the whole loop takes at most a third of deltalake (merge through a running Spark session)",
        "loop",
        "memwal+spark",
        DELTA_ARM,
        1 / 3,
        _START,
    ),
    Aim(
        "the whole loop takes at most a third of deltalake (merge by a cold `spark-submit`)",
        "loop",
        "memwal+spark-submit",
        DELTA_ARM,
        1 / 3,
        _START,
    ),
    Aim(
        "a merge takes at most 2.5 times the floor, which is writing the winning rows once",
        "merge-floor",
        "memwal",
        "write_dataset",
        2.5,
        "Besides writing the winners a merge reads them (the floor has them in memory already), opens and examines "
        "every generation, takes and gives back a lease, and finds the superseded rows by scanning the base table's "
        "keys. The last grows with the base table and not with the work, so the ratio is worst for little work on a "
        "large base.",
    ),
    *(
        Aim(
            f"a durable put of {rows} rows{callers} takes no longer than pylance's at its best setting, neither synced",
            comparison,
            "memwal",
            "pylance",
            1.0,
            "Small puts wait for the file system, for each makes a file and links it under its final name, and that "
            "differs between runs by more than the miss; our put of 100 rows takes less processor time than pylance's.",
            case=f"{rows} rows",
        )
        for comparison, callers in (("puts", ""), ("puts-together", ", 8 callers at once,"))
        for rows in ("100", "1,000", "10,000")
    ),
    Aim(
        "of 100 puts at 30 ms store latency, 99 take at most twice the median",
        "put-latency",
        "memwal",
        None,
        2.0,
        "Threads that flush and check need the processor, too.",
        measure=TAIL.name,
    ),
    Aim(
        "a flush of 50,000 rows takes at most a tenth of pylance's",
        "flushes",
        "memwal",
        "pylance",
        1 / 10,
        "No row is copied, but all keys are sorted and hashed for two filters and the key index of pylance's readers, "
        "which takes half of the processor time; Lance's commit and some ten small files take the rest.",
        case="50,000 rows",
    ),
    Aim(
        "before its merge, a row is written at most 1.1 times",
        "flushes",
        "memwal",
        None,
        1.1,
        "Filters, the key index and the manifest come on top of the rows, and weigh most on few narrow rows.",
        measure=AMPLIFICATION.name,
    ),
    Aim(
        "a scan over 16 unmerged generations takes at most 1.3 times the scan of the base table",
        "scan",
        "memwal",
        "base",
        1.3,
        "Each generation is a table of its own that has to be opened, and its keys are read once before the first row "
        "is delivered; a table that was scanned before keeps both.",
        case="16 generations",
    ),
    Aim(
        "a lookup takes no longer than pylance's planner",
        "lookup",
        "memwal",
        "pylance",
        1.0,
        "Without generations there is nothing to save, and the view's own steps come on top of Lance's lookup.",
    ),
    *(
        Aim(
            f"no process of {what} holds more than {PROCESS_MIB:,} MiB",
            comparison,
            arm,
            None,
            PROCESS_MIB,
            "",
            measure=LARGEST,
        )
        for what, comparison, arm in (
            ("the whole loop", "loop", "memwal"),
            ("the whole loop, merged through Spark,", "loop", "memwal+spark"),
            ("a merge in units of work", "strategies", "units"),
            ("a merge on two executor slots", "spark", "2 slots"),
        )
    ),
    Aim(
        f"a merge with {MERGE_MIB} MiB per commit peaks at no more than {SMALL_MERGE_MIB} MiB, however much is waiting",
        "merge-memory",
        "memwal",
        None,
        SMALL_MERGE_MIB,
        "The process alone, its imports and Lance's pools, takes most of it.",
    ),
    *(
        Aim(
            f"a merge into {LARGEST_BASE:,} rows takes no longer than `{arm}` and the reading of what waits",
            "large-merge",
            "memwal",
            arm,
            1.0,
            "The job also takes and gives back a lease, reads and writes its record, and commits strictly: some 40 ms. "
            "Beyond that, Lance joins its rows just so.",
            case=f"{LARGEST_BASE:,} rows",
        )
        for arm in ("merge_insert", "merge_insert by index")
    ),
    Aim(
        f"a merge of the newest keys into {LARGEST_BASE:,} rows takes at most 1.2 times one into 1,000,000",
        "large-merge",
        "memwal",
        "memwal",
        1.2,
        "A version with more fragments takes longer to open and to commit.",
        case=f"{LARGEST_BASE:,} rows: 80,000 newest",
        against_case="1,000,000 rows: 80,000 newest",
    ),
    Aim(
        f"to find 1,000 keys in {LARGEST_BASE:,} rows, an index reads at most a third of what a scan of keys does",
        "key-search",
        "memwal",
        BY_SCAN,
        1 / 3,
        "A page of Lance's BTREE has 4,096 keys and their addresses, so that 1,000 random keys meet a fifth of all "
        "pages. A column of integers is stored in as few bits as they need: there the index would save too little, and "
        "the scan is chosen.",
        measure=SEARCH.name,
    ),
    Aim(
        f"a merge of 1,000 keys into {LARGEST_BASE:,} rows by an index takes at most a fifth of one by a scan",
        "key-search",
        "memwal",
        BY_SCAN,
        1 / 5,
        "A scan decodes keys at gigabytes a second, and an index a page of 4,096 keys for each; then come the steps of "
        "every merge. What the index saves are the bytes of a distant store.",
    ),
    Aim(
        f"a merge over {FRAGMENTS} fragments at {LATENCY_S * 1000:.0f} ms store latency takes at most 1.5 times one "
        "over a single one",
        "merge-latency",
        "memwal",
        "memwal",
        1.5,
        "Fragments are searched side by side, but not all at once.",
        case=f"{FRAGMENTS} fragments",
        against_case="1 fragment",
    ),
    Aim(
        f"a merge over {FRAGMENTS} fragments at {LATENCY_S * 1000:.0f} ms store latency takes at most 1.5 times Lance's"
        " single pass",
        "merge-latency",
        "memwal",
        "merge_insert",
        1.5,
        "44 requests follow one another, of which Lance's pass, told what waits, makes some 19. The lease takes 10, "
        "the ledger and the record 5, to find out what waits and what the newest version is 7, and that the commit is "
        "of the table that was read 3. Those of fragments and generations are made side by side.",
        case=f"{FRAGMENTS} fragments",
    ),
    *(
        Aim(
            f"a lookup in {LARGEST_BASE:,} rows takes at most 1.3 times {peer}",
            "large-lookup",
            "memwal",
            arm,
            1.3,
            "A cold lookup also opens the store, and reads the MemWAL index, the manifests of regions and the "
            "maintenance record, which for one key takes longer than its row.",
            case=f"{LARGEST_BASE:,}",
        )
        for arm, peer in (
            ("lance", "Lance's own filter by an index"),
            ("take", "the same rows taken by Lance after its search in an index"),
        )
    ),
    Aim(
        "two workers do a large job in at most 1 / 1.7 of the time of one",
        "pinned",
        TWO,
        ONE,
        1 / 1.7,
        f"What stays with the driver is listed in docs/spark.md. `{APART}` shows what two cores and one disk can do at "
        "best.",
        case=LARGE,
    ),
    Aim(
        "one worker does a large job in at most 1.25 times the time of one process on the same core",
        "pinned",
        ONE,
        IN_PROCESS,
        1.25,
        "Each share opens the table anew, and the driver and its Java process need the core, too.",
        case=LARGE,
    ),
    Aim(
        "executors that are forced on a small merge add at most 0.3 s to it",
        "pinned",
        ONE,
        IN_PROCESS,
        0.3,
        "Two stages start, and each opens the table anew.",
        case=SMALL,
        added=True,
    ),
)


def judge(results: Mapping[str, Any]) -> list[Judged]:
    """Compare results with the aims.

    Args:
        results: The JSON document.
    """
    return [judged for aim in AIMS for judged in _judged(aim, results)]


def _judged(aim: Aim, results: Mapping[str, Any]) -> Iterator[Judged]:
    comparisons = [each for each in results["comparisons"] if each["name"] == aim.comparison]
    cases = [
        case
        for comparison in comparisons
        for case in comparison["cases"]
        if aim.case in case["name"].partition(" (")[0] and case["name"].startswith(aim.case)
    ]
    if not cases:
        yield Judged(aim, aim.case, None)
    for case in cases:
        own = _samples(aim, case, aim.arm)
        if aim.against is not None:
            pairs = zip(own, _samples(aim, _other(aim, case, comparisons), aim.against), strict=False)
            own = [a - b if aim.added else a / b for a, b in pairs]
        yield Judged(aim, case["name"], spread(own) if own else None)


def _other(aim: Aim, case: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the case with which one is compared; one without arms if it was not measured."""
    name = case["name"].replace(aim.case, aim.against_case) if aim.against_case else case["name"]
    found = (each for comparison in comparisons for each in comparison["cases"] if each["name"] == name)
    return next(found, {"arms": ()})


def _samples(aim: Aim, case: Mapping[str, Any], name: str) -> Sequence[float]:
    arm: Mapping[str, Any] = next((arm for arm in case["arms"] if arm["name"] == name), {})
    if not aim.measure:
        return cast("Sequence[float]", arm.get("seconds", []))
    return cast("Sequence[float]", arm.get("also", {}).get(aim.measure, []))

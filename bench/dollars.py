"""What requests cost on S3: ours as a server counted them, those of other formats as their designs say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

WRITE_DOLLARS = 0.005 / 1000
READ_DOLLARS = 0.0004 / 1000

BATCHES = 1_000
MEMTABLES = 2
CYCLES_PER_DAY = 144


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by their price: PUT, POST and LIST, and GET and HEAD."""

    writes: float
    reads: float

    def __add__(self, other: Self) -> Self:
        return type(self)(self.writes + other.writes, self.reads + other.reads)

    def __mul__(self, times: float) -> Self:
        return type(self)(self.writes * times, self.reads * times)

    @property
    def dollars(self) -> float:
        return self.writes * WRITE_DOLLARS + self.reads * READ_DOLLARS


COUNTED: Mapping[str, Requests] = MappingProxyType(
    {
        "put": Requests(1, 0),
        "flush": Requests(12, 8),
        "merge": Requests(22, 36),
        "snapshot": Requests(20, 32),
        "lookup, cold": Requests(4, 13),
        "lookup, warm": Requests(2, 6),
        "cycle of a merged table": Requests(127, 211),
        "idle cycle": Requests(3, 8),
    }
)
"""``tests/integration/s3/test_requests.py`` counts them anew."""

NOTHING = Requests(0, 0)


@dataclass(frozen=True, slots=True)
class Way:
    """One format: what it asks for, and why, for the workload of the page."""

    name: str
    million_rows: Requests
    why_rows: str
    idle_day: Requests
    why_idle: str


def ways() -> tuple[Way, ...]:
    """Return this project, then the others."""
    per_memtable = COUNTED["flush"] + COUNTED["merge"] + COUNTED["cycle of a merged table"]
    return (
        Way(
            "memwal",
            COUNTED["put"] * BATCHES + per_memtable * MEMTABLES,
            "1,000 puts; for each of two MemTables a flush, a merge, and a cycle of all other jobs. Counted.",
            COUNTED["idle cycle"] * CYCLES_PER_DAY,
            "a cycle every ten minutes. Counted.",
        ),
        Way(
            "SlateDB",
            Requests(1, 0) * BATCHES + Requests(2, 2) * MEMTABLES,
            "a write that waits for durability waits for the next object of the WAL (`flush_interval`, 100 ms); for "
            "each MemTable (`l0_sst_size_bytes`, 64 MiB) a table, a manifest, and two looks at the boundary of "
            "collection. Compaction begins with more tables than two.",
            Requests(560 * 12 * 24, 0),
            "560 LISTs in five minutes with default settings, by its own count in the draft of "
            "[RFC 0032](https://github.com/slatedb/slatedb/blob/main/rfcs/0032-cached-probing-sequenced-metadata.md), "
            "which aims at less than 5 dollars a month; GETs are left out. Nothing while no process has it open.",
        ),
        Way(
            "Delta Lake",
            Requests(4.2, 2) * BATCHES,
            "each batch is a commit: data file, deletion vectors and log entry are written, the log is listed, its "
            "last checkpoint and newest entry are read; every tenth commit writes a checkpoint and names it "
            "([protocol](https://github.com/delta-io/delta/blob/master/PROTOCOL.md)).",
            NOTHING,
            "nothing runs.",
        ),
        Way(
            "Iceberg",
            Requests(6, 2) * BATCHES,
            "each batch is a commit: data file, delete file, a manifest for each, manifest list and metadata file are "
            "written, the last two are read ([specification](https://iceberg.apache.org/spec/)). The catalog is not "
            "counted.",
            NOTHING,
            "nothing runs.",
        ),
    )


INTRODUCTION = f"""What an S3 server is asked for, at the list price of S3 Standard in us-east-1:
{WRITE_DOLLARS * 1000} dollars for 1,000 PUTs, POSTs or LISTs, {READ_DOLLARS * 1000} for 1,000 GETs or HEADs. DELETEs
are free; storage, traffic and computing come on top. `tests/integration/s3/test_requests.py` counts each operation on a
table of one region, the requests of Lance among them; a job is counted from the opening of its table on.
"""

WORKLOAD = """The workload is a million upserts, 128 MiB, in 1,000 batches of 1,000 rows, each durable before the next
one, and then a table that nobody touches for a day. The other formats are reckoned on paper, from their documents, and
no test keeps their numbers true. Left out for all four: reading the rows that a batch replaces, the parts of large
uploads, lost races and retries.
"""

AT_ONCE = """Durability of each batch is what costs. Whoever can wait commits the million rows at once, and then Delta
Lake and Iceberg need some ten requests, fewer than the jobs here.
"""


def operation_rows() -> list[tuple[str, ...]]:
    """Return the cells of each counted operation."""
    return [
        (name, f"{each.writes:.0f}", f"{each.reads:.0f}", f"{each.dollars * 1_000_000:.2f}")
        for name, each in COUNTED.items()
    ]


def way_rows() -> list[tuple[str, ...]]:
    """Return the cells of each format."""
    return [
        (
            way.name,
            f"{way.million_rows.writes:,.0f}",
            f"{way.million_rows.reads:,.0f}",
            f"{way.million_rows.dollars:.4f}",
            f"{way.idle_day.dollars:.4f}",
        )
        for way in ways()
    ]

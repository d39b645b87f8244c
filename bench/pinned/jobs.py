"""What executors gain and cost, for each job whose work they can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.pinned.cores import APART, IN_PROCESS, ONE, TWO, Cores
from bench.pinned.tables import Prepared, to_catch_up, to_compact, to_merge, to_verify
from bench.tables import MadeOnce, link_copy

LARGE, SMALL = "large", "small"

_CORES = Cores()


@contextmanager
def _done(case: Case, directory: Path, *, arm: str) -> Iterator[Work]:
    prepared: Prepared = case.data.get(directory)
    uri = str(link_copy(prepared.uri, directory / "table"))

    def work() -> Sample:
        return _CORES.driver(arm).run(uri, prepared.request)

    yield work
    prepared.check(uri)


@contextmanager
def _done_twice(case: Case, directory: Path) -> Iterator[Work]:
    """Do the job on two copies at once; half of the time is what nobody can beat who divides it among both cores."""
    prepared: Prepared = case.data.get(directory)
    drivers = _CORES.apart
    uris = [str(link_copy(prepared.uri, directory / f"table{number}")) for number in range(len(drivers))]

    def work() -> Sample:
        with ThreadPoolExecutor(len(drivers)) as pool:
            done = list(pool.map(lambda each: each[0].run(each[1], prepared.request), zip(drivers, uris, strict=True)))
        seconds, driver = max(each["seconds"] for each in done), sum(each["driver"] for each in done)
        return {"seconds": seconds / len(done), "driver": driver / len(done), "executors": 0.0}

    yield work
    for uri in uris:
        prepared.check(uri)


def _cases(full: bool) -> Sequence[Case]:
    """Return one case for each job; the short form is for seeing that everything works."""
    base, source, new, small, keys = (
        (2_000_000, 8_000_000, 1_200_000, 1_280_000, 16_000_000) if full else (100_000, 80_000, 20_000, 64_000, 500_000)
    )

    def case(name: str, make: Callable[[Path], Prepared]) -> Case:
        return Case(name, 1, MadeOnce(make))

    return [
        case(f"{LARGE} merge: {source:,} rows into {base:,}", partial(to_merge, base_rows=base, source_rows=source)),
        case(
            f"{LARGE} catchup: three indexes lack {new:,} rows",
            partial(to_catch_up, indexed_rows=new // 4, new_rows=new),
        ),
        case(f"{LARGE} compact: {small:,} rows", partial(to_compact, row_count=small)),
        case(f"{LARGE} verify: {keys:,} keys", partial(to_verify, row_count=keys)),
        case(f"{SMALL} merge: 10,000 rows into {base:,}", partial(to_merge, base_rows=base, source_rows=10_000)),
    ]


PINNED = Comparison(
    name="pinned",
    question="do a job on Spark standalone, each executor and its driver bound to cores and to one thread "
    "for Lance, Arrow and NumPy, the session running",
    operation="job",
    arms=(
        Arm(IN_PROCESS, "one process on one core", partial(_done, arm=IN_PROCESS)),
        Arm(APART, "the job done twice at once, by a process on each core; half of the time that takes", _done_twice),
        Arm(ONE, "one executor on the same core, the driver beside it there", partial(_done, arm=ONE)),
        Arm(TWO, "two executors on a core each, the driver beside them there", partial(_done, arm=TWO)),
    ),
    cases=_cases,
    rounds=3,
    also=(
        Measure("driver", "processor s of the driver"),
        Measure("executors", "processor s of executors"),
    ),
    in_short=False,
    around=_CORES.started,
)

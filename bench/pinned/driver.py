"""The driver of one arm: waits for jobs, one JSON line each, and answers with the seconds that each took."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import IO

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from bench.pinned.tables import TARGET_ROWS
from memwal_core.jobs.catalog import parse_request
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CompactSettings, Settings
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.spark.tasks import SparkTasks
from memwal_core.table import Table

_SETTINGS = Settings(compact=CompactSettings(target_rows=TARGET_ROWS))

_log = logging.getLogger(__name__)


def main() -> None:
    """Answer until standard input ends; the argument is the number of workers, 0 to work here."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print, too.
    logging.basicConfig(level=logging.WARNING)
    workers = int(sys.argv[1])
    session = LateSession("memwal bench")
    if workers:
        _wake(session, workers)
    _tell(answers, {})
    for line in sys.stdin:
        try:
            _tell(answers, _run(session if workers else None, **json.loads(line)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs go on
            _log.exception("a job failed")
            _tell(answers, {"error": f"{type(error).__name__}: {error}"})
    session.stop()


def _tell(answers: IO[str], answer: object) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def _run(session: LateSession | None, uri: str, request: dict[str, object]) -> dict[str, float]:
    asked = parse_request(str(request.pop("job")), {**request, "engine": "local" if session is None else "spark"})
    start = time.perf_counter()
    table = Table.open(uri, settings=_SETTINGS)
    executors = None if session is None else SparkExecutors(session, table.base)
    report = table.run(asked, executors=executors)
    took = time.perf_counter() - start
    if report.outcome is not JobOutcome.DONE:
        raise RuntimeError(report.why())
    return {"seconds": took}


def _wake(session: LateSession, workers: int) -> None:
    """Let every slot start its Python, and import there what the jobs need."""
    SparkTasks(session, "nothing").map("wake", _import, list(range(workers)))


def _import(_number: int) -> None:
    import memwal_core.jobs.merge.work.tasks  # noqa: F401, PLC0415 - on the executor

    time.sleep(2)  # Long enough for the other slots to need Python, too.


if __name__ == "__main__":
    main()

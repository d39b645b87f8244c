"""Drivers and clusters whose processes are bound to cores, with one thread for whatever computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

import psutil

from demo.stack.stack import free_port
from testkit.processes.spark_cluster import Daemon, start_master, start_worker, until_alive

IN_PROCESS, APART, ONE, TWO = "in-process", "2 processes", "1 worker", "2 workers"
WORKERS: Mapping[str, int] = {IN_PROCESS: 0, ONE: 1, TWO: 2}
"""Workers of each arm; each has one core, and the driver shares the cores of its workers."""

ONE_THREAD = {
    **dict.fromkeys(
        ("LANCE_CPU_THREADS", "TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        "1",
    ),
    "LANCE_IO_THREADS": "2",  # With one, Lance waits for itself for ever in each write.
}

_LITTLE_JAVA = "-XX:TieredStopAtLevel=1"
"""Java carries shares only; compiling its code as well as it can takes a core for seconds. See ``docs/spark.md``."""

_TIMEOUT_S = 180.0
_TAIL = 2000


class PinnedError(RuntimeError):
    """A driver failed, or took too long; the text ends with what its log says last."""


class Driver:
    """An application that has been started, with all that it works with.

    Args:
        process: The driver.
        workers: Its workers, none if it does everything itself.
        log: Where it writes.
    """

    def __init__(self, process: subprocess.Popen[str], workers: list[Daemon], log: Path) -> None:
        self._process = process
        self._input, self._output = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        self._workers = workers
        self._log = log

    def run(self, uri: str, request: Mapping[str, object]) -> dict[str, float]:
        """Run a job, and return seconds and processor seconds.

        Raises:
            PinnedError: It failed.
        """
        before = self._worked()
        answer = self._answer({"uri": uri, "request": dict(request)})
        if "error" in answer:
            raise PinnedError(f"{answer['error']}: {self._log.read_text()[-_TAIL:]}")
        driver, executors = (now - then for now, then in zip(self._worked(), before, strict=True))
        return {"seconds": answer["seconds"], "driver": driver, "executors": executors}

    def until_ready(self) -> None:
        """Wait until its session runs, with Python on every slot."""
        self._answer(None)

    def _answer(self, asked: object) -> dict[str, float]:
        late = threading.Timer(_TIMEOUT_S, self._process.kill)
        late.start()
        try:
            if asked is not None:
                self._input.write(json.dumps(asked) + "\n")
                self._input.flush()
            line = self._output.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            raise PinnedError(
                f"a driver ended, or was ended after {_TIMEOUT_S:.0f} s: {self._log.read_text()[-_TAIL:]}"
            )
        answer: dict[str, float] = json.loads(line)
        return answer

    def _worked(self) -> tuple[float, float]:
        """Return the processor seconds of the driver, and of its executors, so far."""
        return _processor_seconds(self._process.pid), sum(_processor_seconds(each.pid) for each in self._workers)


class Cores:
    """The drivers of all arms, once they are started; the idle ones take no processor time.

    Attributes:
        apart: Drivers without workers, each on a core of its own, that share nothing but the machine.
    """

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}
        self.apart: tuple[Driver, ...] = ()

    def driver(self, arm: str) -> Driver:
        """Return the driver of an arm."""
        return self._drivers[arm]

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start all drivers and clusters, and end them.

        Raises:
            PinnedError: This process may use one core only, or something did not start.
        """
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < max(WORKERS.values()):
            raise PinnedError(f"{max(WORKERS.values())} cores are needed, this process may use {len(cores)}")
        with ExitStack() as cleanup:
            root = Path(cleanup.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            self._drivers = {
                arm: _start(cleanup, root, cores[: max(1, count)], count) for arm, count in WORKERS.items()
            }
            # The first of them has the core of the one that works alone.
            second = _start(cleanup, root, cores[1:2], 0)
            self.apart = (self._drivers[IN_PROCESS], second)
            for each in (*self._drivers.values(), second):
                each.until_ready()
            yield


def _start(cleanup: ExitStack, root: Path, cores: list[int], count: int) -> Driver:
    own = Path(tempfile.mkdtemp(dir=root))
    variables = {**os.environ, **ONE_THREAD}
    workers = []
    if count:
        master, ui = free_port(), free_port()
        start_master(cleanup, own, variables, master, ui)
        workers = [start_worker(cleanup, own, variables, master, core) for core in cores]
        until_alive(ui, workers=count)
        memory = "--executor-memory 512m --driver-memory 1g"
        quiet = "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
        quiet += "".join(f" --conf spark.{side}.extraJavaOptions={_LITTLE_JAVA}" for side in ("driver", "executor"))
        ready = f"--conf spark.scheduler.minRegisteredResourcesRatio=1 --conf spark.cores.max={count}"
        submitted = f"--master spark://127.0.0.1:{master} {memory} {quiet} {ready} pyspark-shell"
        variables["PYSPARK_SUBMIT_ARGS"] = submitted
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-m", "bench.pinned.driver", str(count)]
    log = own / "driver.log"
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=cleanup.enter_context(log.open("wb")),
        text=True,
    )
    cleanup.callback(_end, process)
    return Driver(process, workers, log)


def _end(process: subprocess.Popen[str]) -> None:
    """End a driver and its JVM, which ends with its standard input."""
    try:
        process.communicate(timeout=30)
    except (subprocess.TimeoutExpired, OSError, ValueError):
        process.kill()
        process.wait()


def _processor_seconds(pid: int) -> float:
    """Return what a process and all below it have worked, those that ended included."""
    whole = psutil.Process(pid)
    total = 0.0
    for each in [whole, *whole.children(recursive=True)]:
        try:
            total += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it has just ended, and its parent has its time
            continue
    return total

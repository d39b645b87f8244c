"""A standalone cluster for jobs, parts of which are killed while they work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from demo.stack.stack import free_port
from memwal_core.jobs.request import JobRequest
from testkit.processes.spark_cluster import Daemon, start_spark, start_worker
from tests.integration.kills.spark_jobs import kill_whole, last_of, wait_for

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SETTINGS = {
    "MEMWAL_EXECUTORS__PART_BYTES": "16384",
    "MEMWAL_GC__GRACE_S": "0",
    "MEMWAL_GC__OPEN_WRITER_S": "0",
    "MEMWAL_COMPACT__TARGET_ROWS": "5000",
    "MEMWAL_MERGE__UNIT_BYTES": "1",
}


class Victim(StrEnum):
    """What is killed."""

    EXECUTOR = "executor"
    """One executor with its tasks; its worker starts another."""
    WORKER = "worker"
    """One worker with everything on it, as when its machine is lost; another one joins only later."""
    DRIVER = "driver"
    """The application itself."""
    NONE = "nobody"


@dataclass(frozen=True)
class JobCluster:
    """A cluster of two workers with one core each, and what its applications find in their environment."""

    workers: list[Daemon]
    variables: Mapping[str, str]
    restart: Callable[[], Daemon]

    def executors(self) -> list[psutil.Process]:
        """Return the executors of all applications."""
        found = []
        for child in [child for worker in self.workers for child in psutil.Process(worker.pid).children()]:
            with suppress(psutil.NoSuchProcess):  # One that has just ended.
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def submit(
        self, uri: str, request: JobRequest, log: Path, moment: str, victim: Victim = Victim.EXECUTOR
    ) -> dict[str, Any]:
        """Run a job, and kill its victim as soon as the job's log has a text and the job has executors.

        Returns:
            The report of the job; an empty one if it was killed itself.
        """
        report = log.with_suffix(".json")
        document = {"uri": uri, "request": request.to_json(), "report": str(report)}
        code = self.run([f"{request.info.name}.py", json.dumps(document)], log, moment, victim)
        if victim is Victim.DRIVER:
            return {}
        assert code == 0, last_of(log)
        found: dict[str, Any] = json.loads(report.read_text())
        assert found["where"] == {"engine": "spark", "reason": "it was asked for"}
        return found

    def run(
        self,
        command: Sequence[str],
        log: Path,
        moment: str,
        victim: Victim,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Run an application of ``jobs/``, and kill its victim at a moment, as above; return its exit code.

        Args:
            command: The name of its file, and its arguments.
            more: Further variables of its environment.
        """
        with log.open("wb") as sink:
            job = subprocess.Popen(
                [sys.executable, str(JOBS / command[0]), *command[1:]],
                env={**self.variables, **more},
                stdout=sink,
                stderr=sink,
            )
            try:
                wait_for(lambda: moment in log.read_text(), job, log)
                wait_for(lambda: bool(self.executors()), job, log)
                if victim is Victim.DRIVER:
                    kill_whole(job)
                    assert job.returncode != 0, last_of(log)
                    return int(job.returncode)
                with self._without_one(victim):
                    return job.wait(600)
            finally:
                kill_whole(job)

    @contextmanager
    def _without_one(self, victim: Victim) -> Iterator[None]:
        if victim is Victim.NONE:
            yield
            return
        executor = self.executors()[0]
        if victim is Victim.EXECUTOR:
            _kill(executor)
            yield
            return
        [worker] = [each for each in self.workers if each.pid == executor.ppid()]
        _kill(psutil.Process(worker.pid))
        worker.wait()
        self.workers.remove(worker)
        try:
            yield
        finally:
            self.workers.append(self.restart())


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()


@contextmanager
def started_job_cluster(root: Path) -> Iterator[JobCluster]:
    """Start a cluster, and end it."""
    master = free_port()
    submitted = f"--master spark://127.0.0.1:{master} --executor-memory 512m --driver-memory 512m"
    hosts = "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    variables = {**os.environ, **SETTINGS, "PYSPARK_SUBMIT_ARGS": f"{submitted} {hosts} pyspark-shell"}
    with ExitStack() as cleanup:
        workers = start_spark(cleanup, root, variables, master, free_port())
        yield JobCluster(workers, variables, lambda: start_worker(cleanup, root, variables, master))

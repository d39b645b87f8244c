"""Job processes that can be killed at any moment, and that tell what they were doing."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

import lance

from memwal_core.clock import SystemClock
from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, InternalError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.horizon import Horizon, HorizonClock
from testkit.processes.start import LONGEST_WAIT_S, start_process

TAKES_OVER = "the processes of this test"
"""One holder for all, so that a killed process leaves no lease that others must wait for."""

_EXPECTED = (ConflictError, CommitUnknownError, FencedError)
"""What rivals explain."""


@dataclass(frozen=True, slots=True)
class JobSite:
    """Where and how processes work.

    Attributes:
        uri: The table.
        settings: All settings.
        storage_options: Of the object store.
        keep_versions_s: Before it collects garbage, a process gives up table versions older than this.
    """

    uri: str
    settings: Settings
    storage_options: Mapping[str, str] | None = None
    keep_versions_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Killed:
    """What a process did until it was killed.

    Attributes:
        job: Its job.
        finished: Runs that it finished.
        in_mid_run: Whether it was killed between the beginning and the end of a run.
    """

    job: str
    finished: int
    in_mid_run: bool


class JobProcess:
    """A process that runs one job again and again until it is killed.

    Args:
        process: The process.
        messages: Says when each run begins and ends.
        job: Its job.
        horizon: Knows when its run began.
        place: Its place there.
    """

    def __init__(
        self, process: ForkServerProcess, messages: Connection, job: str, horizon: Horizon, place: int
    ) -> None:
        """Wait until its first run begins.

        Raises:
            InternalError: It did not begin.
        """
        self._process = process
        self._messages = messages
        self._job = job
        self._horizon = horizon
        self._place = place
        self._heard: list[str] = []
        self._hear()

    def await_finished(self) -> None:
        """Wait until it has finished a run.

        Raises:
            InternalError: It did not.
        """
        while not any(message != "begins" for message in self._heard):
            self._hear()

    def kill(self) -> Killed:
        """Send SIGKILL, wait for the end, and return what it had done.

        Raises:
            InternalError: It had ended by itself, with an error that rivals do not explain.
        """
        self._process.kill()
        self._process.join()
        self._horizon.leave(self._place)
        try:
            while self._messages.poll():
                self._heard.append(self._messages.recv())
        except (EOFError, OSError):
            pass  # The end of what a killed process said, perhaps in the middle of a message.
        finally:
            self._messages.close()
        if self._process.exitcode != -signal.SIGKILL:
            raise InternalError(
                "a job process ended by itself", remedy="read its output", job=self._job, said=self._heard[-1:]
            )
        finished = sum(message != "begins" for message in self._heard)
        return Killed(self._job, finished, self._heard[-1:] == ["begins"])

    def _hear(self) -> None:
        if not self._messages.poll(LONGEST_WAIT_S):
            self._process.kill()
            raise InternalError("a job process came to a stop", remedy="read its output", job=self._job)
        try:
            self._heard.append(self._messages.recv())
        except EOFError as error:
            raise InternalError("a job process ended by itself", remedy="read its output", job=self._job) from error


def start_job(site: JobSite, job: str, horizon: Horizon) -> JobProcess:
    """Start a process and wait until its first run begins.

    Args:
        site: Where it works.
        job: ``merge``, ``snapshot``, ``catchup``, ``compact`` or ``gc``.
        horizon: Of all processes on the table; ages of garbage count from it.
    """
    place = horizon.enter()
    process, messages = start_process(_run_for_ever, site, job, horizon, place)
    return JobProcess(process, messages, job, horizon, place)


def _run_for_ever(site: JobSite, job: str, horizon: Horizon, place: int, messages: Connection) -> None:
    logging.disable(logging.WARNING)
    clock = HorizonClock(horizon) if job == "gc" else None
    admin = Table.open(site.uri, storage_options=site.storage_options, settings=site.settings, clock=clock)
    while True:
        horizon.begin(place)
        messages.send("begins")
        try:
            run_once(admin, site, job, horizon)
        except _EXPECTED:
            messages.send("conflict")
        else:
            messages.send("ends")


def run_once(admin: Table, site: JobSite, job: str, horizon: Horizon | None = None) -> None:
    """Run a job once, with its lease, as an operator would.

    Args:
        admin: Of the table.
        site: The same table, and how long its versions are kept.
        job: See ``start_job``.
        horizon: Of others who work on the table; None if there are none.

    Raises:
        InternalError: There is no such job.
    """
    if job == "merge":
        admin.run(MergeRequest(), holder=TAKES_OVER)
    elif job == "snapshot":
        admin.run(SnapshotRequest(force=True), holder=TAKES_OVER)
    elif job == "catchup":
        admin.run(CatchupRequest(), holder=TAKES_OVER)
    elif job == "compact":
        admin.run(CompactRequest(force=True), holder=TAKES_OVER)
    elif job == "gc":
        forget_versions(site, horizon)
        admin.run(GcRequest(dry_run=False), holder=TAKES_OVER)
    else:
        raise InternalError("there is no such job", remedy="correct the test", job=job)


def forget_versions(site: JobSite, horizon: Horizon | None = None) -> None:
    """Give up old table versions, which otherwise hold every generation that they have not merged."""
    options = dict(site.storage_options or {}) or None
    under_way = SystemClock().now() - horizon.moment() if horizon is not None else timedelta()
    lance.dataset(site.uri, storage_options=options).cleanup_old_versions(
        older_than=timedelta(seconds=site.keep_versions_s) + under_way
    )

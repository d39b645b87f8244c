"""Job processes that can be killed at any moment, and that tell what they were doing.

The processes come from a server that has imported everything and used nothing, so that starting
one takes milliseconds: Lance may not be forked once it has begun to work.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Protocol

import lance

from memwal_core.admin import CatchupRequest, CompactRequest, GcRequest, MergeRequest, SnapshotRequest, TableAdmin
from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, InternalError
from memwal_core.settings import Settings

_START_S = 60.0
TAKES_OVER = "the processes of this test"
"""One holder for all, so that a killed process leaves no lease that others must wait for."""

_IMPORTED_LATE = ("memwal_core.base_table.version_catalog",)
"""What jobs import at their first commit; on a busy machine it takes longer than most processes live here."""

_EXPECTED = (ConflictError, CommitUnknownError, FencedError)
"""What rivals explain."""


class _Process(Protocol):
    def join(self, timeout: float | None = None) -> None: ...

    def kill(self) -> None: ...

    @property
    def exitcode(self) -> int | None: ...


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
    """

    def __init__(self, process: _Process, messages: Connection, job: str) -> None:
        """Wait until its first run begins.

        Raises:
            InternalError: It did not begin.
        """
        self._process = process
        self._messages = messages
        self._job = job
        if not wait([messages], timeout=_START_S):
            process.kill()
            raise InternalError("a job process did not start", remedy="read its output", job=job)

    def kill(self) -> Killed:
        """Send SIGKILL, wait for the end, and return what it had done.

        Raises:
            InternalError: It had ended by itself, with an error that rivals do not explain.
        """
        self._process.kill()
        self._process.join()
        heard = []
        try:
            while self._messages.poll():
                heard.append(self._messages.recv())
        except EOFError:
            pass  # The end of what a killed process said.
        finally:
            self._messages.close()
        if self._process.exitcode != -signal.SIGKILL:
            raise InternalError(
                "a job process ended by itself", remedy="read its output", job=self._job, said=heard[-1:]
            )
        finished = sum(message != "begins" for message in heard)
        return Killed(self._job, finished, bool(heard) and heard[-1] == "begins")


@contextmanager
def job_process_server() -> Iterator[multiprocessing.context.ForkServerContext]:
    """Prepare the server that processes come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_IMPORTED_LATE])
    yield context


def start_job(context: multiprocessing.context.ForkServerContext, site: JobSite, job: str) -> JobProcess:
    """Start a process and wait until its first run begins.

    Args:
        context: See ``job_process_server``.
        site: Where it works.
        job: ``merge``, ``snapshot``, ``catchup``, ``compact`` or ``gc``.
    """
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_run_for_ever, args=(site, job, sending), daemon=True)
    process.start()
    sending.close()
    return JobProcess(process, receiving, job)


def _run_for_ever(site: JobSite, job: str, messages: Connection) -> None:
    logging.disable(logging.WARNING)
    admin = TableAdmin.open(site.uri, storage_options=site.storage_options, settings=site.settings)
    while True:
        messages.send("begins")
        try:
            run_once(admin, site, job)
        except _EXPECTED:
            messages.send("conflict")
        else:
            messages.send("ends")


def run_once(admin: TableAdmin, site: JobSite, job: str) -> None:
    """Run a job once, with its lease, as an operator would.

    Raises:
        InternalError: There is no such job.
    """
    if job == "merge":
        admin.merge(MergeRequest(holder=TAKES_OVER))
    elif job == "snapshot":
        admin.build_snapshot(SnapshotRequest(force=True, holder=TAKES_OVER))
    elif job == "catchup":
        admin.catch_up(CatchupRequest(holder=TAKES_OVER))
    elif job == "compact":
        admin.compact(CompactRequest(force=True, holder=TAKES_OVER))
    elif job == "gc":
        forget_versions(site)
        admin.collect_garbage(GcRequest(dry_run=False, holder=TAKES_OVER))
    else:
        raise InternalError("there is no such job", remedy="correct the test", job=job)


def forget_versions(site: JobSite) -> None:
    """Give up old table versions, which otherwise hold every generation that they have not merged."""
    options = dict(site.storage_options or {}) or None
    lance.dataset(site.uri, storage_options=options).cleanup_old_versions(
        older_than=timedelta(seconds=site.keep_versions_s)
    )

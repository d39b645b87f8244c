"""Around the tasks of a batch: reporting their progress, and what to do when Spark gives up."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from memwal_core.errors import InvalidRequestError, MemwalError, UnavailableError
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import IngestProgress
from memwal_core.ingest.records import BatchRecords
from memwal_core.spark.reachable import bare_executor_behind
from memwal_core.spark.session import NO_ANSWER

_CONDITION = re.compile(r"(?:^|: )\[([A-Z][A-Z0-9_.]*)\]", re.MULTILINE)
"""Spark's name of an error, in front of its text."""
_FILE = re.compile(r"\[FAILED_READ_FILE[A-Z0-9_.]*\] Encountered error while reading file (.+?)\.\s")
_OF_NETWORKS = re.compile(
    r"^Caused by: (?:java\.net\.|javax\.net\.|java\.io\.InterruptedIO|org\.apache\.(?:http|hadoop\.(?:fs\.s3a|net))\."
    r"|com\.amazonaws\.|software\.amazon\.|com\.microsoft\.|com\.azure\.|com\.google\.)",
    re.MULTILINE,
)
"""Classes of Java's exceptions that say that a store did not answer, not that its file is damaged."""
_OURS = re.compile(r"memwal_core\.errors\.(?!Unavailable|CommitUnknown|Internal)\w+")
"""An error of ours after which a repetition fails as well."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """What tasks are going to do.

    Attributes:
        progress: Called after each change.
    """

    batch: BatchId
    done: int
    total: int
    progress: IngestProgress


@contextmanager
def watched(records: BatchRecords, expected: Expected, interval_s: float) -> Iterator[None]:
    """Report progress from the records of a batch as long as the context lasts."""
    ended = threading.Event()

    def watch() -> None:
        seen = expected.done
        while not ended.wait(interval_s):
            try:
                now = records.count_shares(expected.batch)
            except MemwalError as error:
                _log.info("progress of a batch is unknown [batch=%s]: %s", expected.batch, error)
                continue
            if now > seen:
                _log.info(
                    "regions are being written [done=%d, total=%d, batch=%s]", now, expected.total, expected.batch
                )
                expected.progress(now, expected.total)
            seen = max(seen, now)

    expected.progress(expected.done, expected.total)
    thread = threading.Thread(target=watch, name="memwal-ingest-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def spark_errors(batch: BatchId, python: str) -> Iterator[None]:
    """Turn a failure of Spark, whose tasks failed repeatedly, into one of ours; ``python`` is that of executors.

    Raises:
        InvalidRequestError: A file of the source is damaged, or an executor lacks the package.
        UnavailableError: Anything else; the batch continues where it stopped.
    """
    try:
        yield
    except NO_ANSWER:
        raise
    except (PySparkException, Py4JError) as error:
        bare = bare_executor_behind(error, python)
        if bare is not None:
            raise bare from None
        damaged, cause = unreadable_file(error), cause_of(error)
        # Errors of regions come as results of their tasks: what a task raises is about what it reads.
        if damaged is not None or _OURS.search(cause):
            raise InvalidRequestError(
                "a file of the source cannot be read",
                remedy="replace the file by one that is whole, or take it out of the source; then run the batch again",
                batch=str(batch),
                file=damaged or "",
                cause=cause,
            ) from None
        raise UnavailableError(
            "Spark failed to write the batch",
            remedy="read the log of the executors, then run the batch again; it continues where it stopped",
            batch=str(batch),
            cause=cause,
        ) from None


def unreadable_file(error: PySparkException | Py4JError) -> str | None:
    """Return the file of a source at which Spark failed, unless its store did not answer."""
    text = str(error)
    named = _FILE.search(text)
    return named[1] if named and not _OF_NETWORKS.search(text) else None


def cause_of(error: PySparkException | Py4JError) -> str:
    """Return why Spark failed, without anything that a source says, which Spark quotes.

    That is an error of ours, the name of Spark's own, or the class of a Java exception.
    """
    text = str(error)
    ours = [line.strip() for line in text.splitlines() if line.strip().startswith("memwal_core.errors.")]
    named = _CONDITION.search(text)
    java = getattr(error, "java_exception", None)
    found = ours[-1] if ours else named[1] if named else java.getClass().getName() if java is not None else ""
    return f"{type(error).__name__}: {found}"[:500] if found else type(error).__name__

"""Planning and verifying for the ingest DAG."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.ingest import BatchId, BatchRecords
from memwal_core.tasks.targets import Target, choose_target, find_registered, open_target

_log = logging.getLogger(__name__)


class IngestItem(TypedDict):
    """One Spark job.

    Attributes:
        label: For people.
        arguments: Of ``jobs/ingest.py``.
        stream: Whose batch it writes.
        batch: The batch.
        dry_run: Whether it only checks and counts.
        target: The table.
    """

    label: str
    arguments: list[str]
    stream: str
    batch: str
    dry_run: bool
    target: Target


class IngestResult(TypedDict):
    """What a run did; also what the asset event of the table says.

    Attributes:
        summary: For people.
        table: Name of the table.
        uri: Its address.
        connection: Its storage connection; empty = none.
        stream: Whose batch it was.
        batch: The batch.
        rows: Rows written, deletes included.
        regions: Regions that got some of them.
    """

    summary: str
    table: str
    uri: str
    connection: str
    stream: str
    batch: str
    rows: int
    regions: int


def plan_ingest(params: Mapping[str, object], default_batch: str, holder: str) -> list[IngestItem]:
    """Look whether the batch of a run is written, and say what the job will do.

    Args:
        params: Of the run: ``table``, ``sources``, ``format``, ``stream``, ``batch``, ``suites``, ``order_by``,
            ``delete_column``, ``takeover``, ``dry_run`` and the storage's.
        default_batch: Batch id if the form names none; the same whenever the run is cleared.
        holder: The run's id.

    Returns:
        The job; nothing if the batch was written before.

    Raises:
        InvalidRequestError: Parameters do not fit, or the table is not registered.
        UnavailableError: Storage failed; try again.
    """
    target, registered = choose_target(params), find_registered(params)
    batch = BatchId(str(params["stream"]), str(params.get("batch") or default_batch))
    table = open_target(target).table
    table.require_writable()
    records = BatchRecords(table.store, table.clock)
    done = records.done(batch)
    if done is not None:
        _log.info("nothing to do: batch %s was written at %s, %s rows", batch, done.finished_at, done.rows)
        return []
    written = records.count_shares(batch)
    _log.info("batch %s: %s", batch, f"begun before, {written} regions are written" if written else "not begun")
    suites = [*registered.input_suites, *_texts(params, "suites")]
    arguments = ["--uri", target["uri"], "--ok-when-nothing", "--stream", batch.stream, "--batch", batch.batch]
    arguments += ["--takeover", str(params["takeover"]), "--holder", holder]
    for name in ("format", "order_by", "delete_column"):
        if params.get(name):
            arguments += [f"--{name.replace('_', '-')}", str(params[name])]
    for suite in suites:
        arguments += ["--suite", suite]
    for name, value in target["storage_options"].items():
        arguments += ["--storage-option", f"{name}={value}"]
    dry_run = bool(params.get("dry_run"))
    arguments += ["--dry-run"] if dry_run else []
    return [
        IngestItem(
            label=f"{target['name']}: batch {batch}",
            arguments=[*arguments, "--source", *_texts(params, "sources")],
            stream=batch.stream,
            batch=batch.batch,
            dry_run=dry_run,
            target=target,
        )
    ]


def verify_ingest(items: Collection[IngestItem]) -> IngestResult:
    """Read the record of the batch anew.

    Args:
        items: The job that ran; exactly one, and no dry run.

    Raises:
        InternalError: The job left no record.
        UnavailableError: Storage failed; try again.
    """
    (item,) = items
    target, batch = item["target"], BatchId(item["stream"], item["batch"])
    table = open_target(target).table
    done = BatchRecords(table.store, table.clock).done(batch)
    if done is None:
        raise InternalError("the job left no record of the batch", remedy="read the log of the job", batch=str(batch))
    rows = done.rows or 0
    return IngestResult(
        summary=f"batch {batch} is written: {rows:,} rows in {done.regions} regions",
        table=target["name"],
        uri=target["uri"],
        connection=target["connection"],
        stream=batch.stream,
        batch=batch.batch,
        rows=rows,
        regions=done.regions,
    )


def _texts(params: Mapping[str, object], name: str) -> list[str]:
    given = params.get(name) or ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidRequestError("this must be a list", remedy="correct the parameters", parameter=name)
    return [str(each) for each in given]

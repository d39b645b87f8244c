"""Planning and verifying for the merge DAG."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NotRequired, TypedDict

from memwal_core.admin import MergeRequest
from memwal_core.cli.options import show_bytes
from memwal_core.errors import CorruptionError
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.merge import MergeBatch, RegionReport, explain_stuck
from memwal_core.maintenance.signals import DUPLICATES_FACT, VERIFY
from memwal_core.tasks.leases import give_back, take
from memwal_core.tasks.targets import Target, choose_target, open_target

_log = logging.getLogger(__name__)


class MergeParams(TypedDict):
    """The parameters of a run, as the DAG's form gives them.

    Attributes:
        table: Name of a registered table, path or address.
        regions: Region ids; empty = all.
        max_bytes: Arrow bytes of a commit and of a job; None = as configured.
        dry_run: Only plan.
        storage_options: For the object store.
        storage_connection: Airflow connection of type lance, or nothing.
    """

    table: str
    regions: Sequence[str]
    max_bytes: int | None
    dry_run: bool
    storage_options: Mapping[str, str]
    storage_connection: NotRequired[str | None]


class WorkItem(TypedDict):
    """One job.

    Attributes:
        label: For people.
        arguments: Of ``jobs/merge.py``.
        through: Region id -> progress that the job must reach.
        target: The table.
        ticket: The lease that the job works under; empty until it is taken.
    """

    label: str
    arguments: list[str]
    through: dict[str, int]
    target: Target
    ticket: str


class MergeResult(TypedDict):
    """What a run did; also what the asset event of the table says.

    Attributes:
        summary: For people.
        table: Name of the table.
        uri: Its address.
        connection: Its storage connection; empty = none.
        version: Version that was verified.
        generations: Region id -> progress.
        rows: Live rows of the base table.
    """

    summary: str
    table: str
    uri: str
    connection: str
    version: int
    generations: dict[str, int]
    rows: int


def plan_merge(params: MergeParams) -> list[WorkItem]:
    """Plan the merge of a table and log the verdict on every region.

    Args:
        params: Of the run.

    Returns:
        The jobs to run, one after another; empty if there is nothing to merge or on a dry run.

    Raises:
        InvalidRequestError: The parameters do not fit the table; correct them.
        CorruptionError: Nothing can be merged before somebody has looked at a region.
        UnavailableError: Storage failed; try again.
    """
    target = choose_target(params)
    request = MergeRequest(
        regions={parse_region_id(text) for text in params["regions"]} or None, max_bytes=params["max_bytes"]
    )
    work = open_target(target).plan_merge(request)
    for region in work.report.regions:
        trigger = work.report.triggers.get(region.region_id)
        _log.info("%s; %s", _verdict(region), "" if trigger is None else trigger.reason)
    stuck = explain_stuck(work.report.table_uri, work.report.plan)
    if stuck is not None and (params["dry_run"] or not work.batches):
        raise stuck
    labels = [_label(number, len(work.batches), batch) for number, batch in enumerate(work.batches, start=1)]
    for label in labels or ["nothing to do: every flushed MemTable is merged"]:
        _log.info("%s", label)
    if params["dry_run"]:
        _log.info("dry run: nothing is changed")
        return []
    return [_work_item(label, params, target, batch) for label, batch in zip(labels, work.batches, strict=True)]


def hold_lease(items: Sequence[WorkItem], holder: str) -> list[WorkItem]:
    """Take the lease of the table's merge for a run, and hand its ticket to each job.

    Args:
        items: The jobs, all of one table.
        holder: The run's id.

    Raises:
        ConflictError: Another run merges this table. Try again later.
        UnavailableError: Storage failed. Try again.
    """
    if not items:
        return []
    ticket = take(items[0]["target"], JobKey("merge"), holder)
    more = ["--lease", ticket]
    return [{**item, "ticket": ticket, "arguments": [*more, *item["arguments"]]} for item in items]


def release_lease(items: Sequence[WorkItem]) -> list[str]:
    """Give the lease of a run back, if it still has it.

    Returns:
        The ticket that was given back.
    """
    return list(give_back((item["target"], item["ticket"]) for item in items[:1]))


def verify_merge(items: Collection[WorkItem], holder: str) -> MergeResult:
    """Read the table anew, check what the jobs promised, and record the proof in the ledger.

    Args:
        items: The jobs that ran, all of one table; at least one.
        holder: The run's id.

    Returns:
        What was found.

    Raises:
        CorruptionError: Progress or keys are wrong; merge nothing and delete nothing.
        UnavailableError: Storage failed; try again.
    """
    through = {parse_region_id(region): generation for item in items for region, generation in item["through"].items()}
    target = next(iter(items))["target"]
    admin = open_target(target)
    with admin.insight.ledger.run(admin.insight.new_run(VERIFY, holder)) as progress:
        try:
            proof = admin.verify_merge(through)
        except CorruptionError as error:
            rows, keys = error.facts.get("rows"), error.facts.get("keys")
            if isinstance(rows, int) and isinstance(keys, int):
                progress.facts[DUPLICATES_FACT] = rows - keys
            raise
        progress.facts.update({"version": proof.version, "rows": proof.rows, DUPLICATES_FACT: 0})
    for region in sorted(through):
        _log.info("region %s: planned through %d, merged %d", region, through[region], proof.progress[region])
    return MergeResult(
        summary=f"verified on version {proof.version}: {len(through)} regions are merged as planned, "
        f"{proof.rows:,} rows, every key once",
        table=target["name"],
        uri=target["uri"],
        connection=target["connection"],
        version=proof.version,
        generations={str(region): generation for region, generation in proof.progress.items()},
        rows=proof.rows,
    )


def _work_item(label: str, params: MergeParams, target: Target, batch: MergeBatch) -> WorkItem:
    arguments = ["--uri", target["uri"], "--ok-when-nothing"]
    if params["max_bytes"] is not None:
        arguments += ["--max-bytes", str(params["max_bytes"])]
    for pair in _pairs(params["storage_options"]):
        arguments += ["--storage-option", pair]
    regions = sorted(str(region) for region in batch.through)
    return WorkItem(
        label=label,
        arguments=[*arguments, "--regions", *regions],
        through={str(region): generation for region, generation in batch.through.items()},
        target=target,
        ticket="",
    )


def _pairs(storage_options: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in storage_options.items()]


def _label(number: int, count: int, batch: MergeBatch) -> str:
    return (
        f"job {number} of {count}: {len(batch.through)} regions, {batch.generations} generations, "
        f"{show_bytes(batch.size_bytes)}"
    )


def _verdict(region: RegionReport) -> str:
    why = f"{region.verdict.value}: {region.evidence}" if region.evidence else region.verdict.value
    return f"region {region.region_id}: merged {region.merged_before}, waiting {region.waiting}, {why}"

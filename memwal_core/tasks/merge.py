"""Planning and verifying for the merge DAG."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from memwal_core.admin import MergeRequest
from memwal_core.cli.options import open_admin, show_bytes
from memwal_core.errors import CorruptionError
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.merge import MergeBatch, RegionReport

_log = logging.getLogger(__name__)


class MergeParams(TypedDict):
    """The parameters of a run, as the DAG's form gives them.

    Attributes:
        table: Path or address.
        regions: Region ids; empty = all.
        max_bytes: Arrow bytes of a commit and of a job; None = as configured.
        dry_run: Only plan.
        storage_options: For the object store.
    """

    table: str
    regions: Sequence[str]
    max_bytes: int | None
    dry_run: bool
    storage_options: Mapping[str, str]


class WorkItem(TypedDict):
    """One job.

    Attributes:
        label: For people.
        arguments: Of ``jobs/merge.py``.
        through: Region id -> progress that the job must reach.
    """

    label: str
    arguments: list[str]
    through: dict[str, int]


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
    request = MergeRequest(
        regions={parse_region_id(text) for text in params["regions"]} or None, max_bytes=params["max_bytes"]
    )
    work = open_admin(params["table"], _pairs(params["storage_options"])).plan_merge(request)
    for region in work.report.regions:
        _log.info("%s", _verdict(region))
    stuck = work.report.plan.stuck
    if stuck and (params["dry_run"] or not work.batches):
        raise CorruptionError(
            "some regions cannot be merged before somebody has looked at them",
            remedy="read the verdicts above and follow docs/runbooks",
            table=work.report.table_uri,
            regions={str(region.region_id): f"{region.verdict.value}: {region.evidence}" for region in stuck},
        )
    labels = [_label(number, len(work.batches), batch) for number, batch in enumerate(work.batches, start=1)]
    for label in labels or ["nothing to do: every flushed MemTable is merged"]:
        _log.info("%s", label)
    if params["dry_run"]:
        _log.info("dry run: nothing is changed")
        return []
    return [_work_item(label, params, batch) for label, batch in zip(labels, work.batches, strict=True)]


def verify_merge(params: MergeParams, items: Collection[WorkItem]) -> str:
    """Read the table anew and check what the jobs promised.

    Args:
        params: Of the run.
        items: The jobs that ran.

    Returns:
        What was found, for people.

    Raises:
        CorruptionError: Progress or keys are wrong; merge nothing and delete nothing.
        UnavailableError: Storage failed; try again.
    """
    through = {parse_region_id(region): generation for item in items for region, generation in item["through"].items()}
    proof = open_admin(params["table"], _pairs(params["storage_options"])).verify_merge(through)
    for region in sorted(through):
        _log.info("region %s: planned through %d, merged %d", region, through[region], proof.progress[region])
    return (
        f"verified on version {proof.version}: {len(through)} regions are merged as planned, "
        f"{proof.rows:,} rows, every key once"
    )


def _work_item(label: str, params: MergeParams, batch: MergeBatch) -> WorkItem:
    arguments = ["--uri", params["table"], "--ok-when-nothing"]
    if params["max_bytes"] is not None:
        arguments += ["--max-bytes", str(params["max_bytes"])]
    for pair in _pairs(params["storage_options"]):
        arguments += ["--storage-option", pair]
    regions = sorted(str(region) for region in batch.through)
    return WorkItem(
        label=label,
        arguments=[*arguments, "--regions", *regions],
        through={str(region): generation for region, generation in batch.through.items()},
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

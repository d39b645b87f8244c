"""Prove a merge from the table alone: progress is where it should be, and every key occurs once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from memwal_core.base_table import TableReader
from memwal_core.errors import CorruptionError, MemwalError
from memwal_core.ids import RegionId
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.plan import plan_verification
from memwal_core.jobs.verify.run import require_single_keys


@dataclass(frozen=True, slots=True)
class MergeProof:
    """What was checked and found right.

    Attributes:
        rows: Live rows, each with a key of its own if the table has a key.
        progress: Region -> recorded progress, for the regions that were asked for.
    """

    version: int
    rows: int
    progress: Mapping[RegionId, int]
    has_key: bool = True


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run of ``verify`` found: a version, and its rows, each with a key of its own."""

    version: int
    rows: int


def verify_merge(
    table: TableReader,
    through: Mapping[RegionId, int],
    sharing: Sharing | None = None,
    counted: Collection[Counted] = (),
) -> MergeProof:
    """Read the table again and check that regions are merged at least ``through`` these generations, every key once.

    Keys of a version that was ``counted``, and that has all of these generations, are not counted again. A
    ``CorruptionError`` means that progress is missing or went back, or that a key occurs more than once:
    merge nothing and delete nothing; follow the runbook.
    """
    state = table.state()
    details = table.require_mem_wal(state)
    progress = {region: details.merged_generation(region) for region in through}
    behind = {str(region): progress[region] for region, generation in through.items() if progress[region] < generation}
    if behind:
        raise CorruptionError(
            "generations that were merged are not recorded as merged",
            remedy="start no merge and no garbage collection; follow docs/runbooks/progress-lost.md",
            table=table.uri,
            version=state.version,
            recorded=behind,
            expected={str(region): generation for region, generation in through.items() if str(region) in behind},
        )
    plan = plan_verification(table.uri, state)
    if not plan.schema.names:
        return MergeProof(state.version, state.num_rows, progress, has_key=False)
    for each in counted:
        if _has_merged(table, each.version, through):
            return MergeProof(each.version, each.rows, progress)
    if sharing is not None:
        sharing.choose(plan.work)
    return MergeProof(state.version, require_single_keys(table, plan, sharing), progress)


def _has_merged(table: TableReader, version: int, through: Mapping[RegionId, int]) -> bool:
    try:
        details = table.require_mem_wal(table.state(version))
    except MemwalError:
        return False  # It is gone.
    return all(details.merged_generation(region) >= generation for region, generation in through.items())

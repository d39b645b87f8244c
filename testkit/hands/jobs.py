"""Jobs and thaws in a history: what they may do, and what they have to."""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.coordination.freeze import Choice, Freeze, FreezeCause
from memwal_core.errors import MemwalError
from memwal_core.ids import RegionId
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.report import ThawReport
from memwal_core.jobs.thaw.run import Decision
from memwal_core.rng import Rng
from testkit.hands.model import REGION_CAUSES, Merged, RegionModel, Version
from testkit.hands.place import TablePlace, WrongError

JOBS: Mapping[str, JobRequest] = {
    "merge": MergeRequest(),
    "catchup": CatchupRequest(),
    "compact": CompactRequest(force=True, remove_versions=True),
    "snapshot": SnapshotRequest(force=True),
    "gc": GcRequest(dry_run=False),
    "flush": FlushRequest(fence=True),
    "maintain": MaintainRequest(delete=True, remove_versions=True, ignore_pauses=True),
    "repair": RepairRequest(),
}
_ENDED_WELL = {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}


def run_job(place: TablePlace, name: str) -> str:
    """Run one job as an operator starts it, judge how it ended, and take over what it made.

    Raises:
        WrongError: It did what the model excludes, or refused without a reason.
    """
    try:
        outcome = place.table(even_if_damaged=name == "repair").run(JOBS[name]).outcome
    except Exception as error:  # noqa: BLE001 - whatever a job raises is judged
        said = place.require_excused(error, name)
        place.settle()
        return said
    if name != "repair":
        place.model.addresses = place.model.addresses or {place.uri}
    place.settle()
    _require_right_end(place, name, outcome)
    return str(outcome)


def _require_right_end(place: TablePlace, name: str, outcome: JobOutcome) -> None:
    model = place.model
    merges = name in ("merge", "maintain")
    if outcome is JobOutcome.FROZEN:
        _require_excused_freezes(place, name)
    if model.is_sound and not place.excuses() and model.is_enabled and outcome not in _ENDED_WELL:
        raise WrongError(f"{name} ended {outcome} on a sound table")
    if not merges or outcome not in _ENDED_WELL:
        return
    must = model.must_freeze | ({"another address"} if place.is_moved else set())
    if must:
        raise WrongError(f"{name} ended {outcome} although {sorted(must)}")
    model.excuses.clear()
    waiting = [each for each, region in model.regions.items() if model.merged(each) < len(region.layers)]
    if waiting and model.is_sound:
        raise WrongError(f"{name} ended {outcome}, and generations of {waiting} wait")


def _require_excused_freezes(place: TablePlace, name: str) -> None:
    causes = {each.cause for each in place.table().thaw().active}
    if not causes or causes - place.excuses():
        raise WrongError(f"{name} ended frozen without a reason: {sorted(causes - place.excuses())}")
    place.model.frozen |= causes


def thaw(place: TablePlace, rng: Rng) -> str:
    """Decide about every active freeze, in an order and with choices of chance.

    Raises:
        WrongError: A choice did not do what it means.
    """
    try:
        active = place.table().thaw().active
    except MemwalError as error:
        return place.require_excused(error, "thaw")
    said = []
    for cause in dict.fromkeys(each.cause for each in active):
        choices = [each for each in cause.facts.choices if _is_played(cause, each)]
        rng.shuffle(choices)
        said.append(f"{cause.value} " + _thaw_cause(place, cause, choices))
    return "; ".join(said) or "was not frozen"


def _is_played(cause: FreezeCause, choice: Choice) -> bool:
    if cause is FreezeCause.REGION_BEGAN_AGAIN and choice is Choice.ACCEPT:
        return False  # No clock is set back in a history.
    return cause is not FreezeCause.REGION_WENT_BACK  # Which rows are given up then is not known to the model.


def _thaw_cause(place: TablePlace, cause: FreezeCause, choices: list[Choice]) -> str:
    for choice in choices:
        frozen = [each for each in place.table().thaw().active if each.cause is cause]
        try:
            report = place.table().thaw(Decision(choice, "hands", cause))
        except MemwalError as error:
            return place.require_excused(error, "thaw")
        if report.outcome is JobOutcome.BLOCKED:
            continue
        if report.outcome is not JobOutcome.DONE:
            raise WrongError(f"thaw of {cause} with {choice} ended {report.outcome}: {report.why()}")
        _take_over(place, choice, frozen, report)
        return choice.value
    return "stays"


def _take_over(place: TablePlace, choice: Choice, frozen: list[Freeze], report: ThawReport) -> None:
    _end_freezes(place, choice, frozen, report)
    model = place.model
    stored = place.stored_progress()
    if stored is None or model.now.progress is None:
        place.note_version(stored)
        return
    targets = {each.region_id: each.target for each in report.regions}
    before = {each: model.merged(each) for each in model.regions}
    _take_over_progress(place, stored)
    for region_id, target in targets.items():
        if stored.get(region_id, 0) != target:
            raise WrongError(f"thaw promised progress {target} of {region_id}, and recorded {stored.get(region_id, 0)}")
        if choice is Choice.MERGE_AGAIN and model.merged(region_id) != before.get(region_id, 0):
            raise WrongError(f"merge-again changed what is merged of {region_id} to {model.merged(region_id)}")


def _end_freezes(place: TablePlace, choice: Choice, frozen: list[Freeze], report: ThawReport) -> None:
    model = place.model
    if choice is Choice.ACCEPT_COPY:
        model.addresses = {place.uri}
    if choice is Choice.ACCEPT_ADDRESS:
        model.addresses.add(place.uri)
    for freeze in frozen:
        if freeze.cause is FreezeCause.REGION_VANISHED and freeze.region_id is not None:
            model.regions.pop(freeze.region_id, None)
        if freeze.cause in REGION_CAUSES and freeze.region_id is not None:
            model.partial.discard(str(freeze.region_id))
            if freeze.region_id in model.regions:
                model.regions[freeze.region_id].lost.clear()
    if not report.active:
        model.must_freeze.clear()
        model.is_turned_back = False
    model.frozen = {each.cause for each in report.active}


def _take_over_progress(place: TablePlace, stored: Mapping[RegionId, int]) -> None:
    model = place.model
    place.note_version(stored)
    dated = {each: Merged(_incarnation(model.regions, each), merged) for each, merged in stored.items()}
    model.versions[model.newest] = Version(model.now.rows, dated)


def _incarnation(regions: Mapping[RegionId, RegionModel], region_id: RegionId) -> int:
    return regions[region_id].incarnation if region_id in regions else 0

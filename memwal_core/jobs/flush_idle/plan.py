"""Decide which regions have lost their writer: a pure function of the signs of life and the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from memwal_core.ids import RegionId
from memwal_core.settings import Settings
from memwal_core.writer.claim.takeover import is_ahead


class IdleReason(StrEnum):
    """Why a region is flushed, or why not."""

    RELEASED = "its writer gave it back"
    SILENT = "its writer shows no sign of life"
    OVERDUE = "its rows have waited too long, whatever its writer does"
    REQUESTED = "asked for although its writer may be alive"
    FLUSHED = "every row is flushed"
    YOUNG = "its rows have not waited long enough"
    ALIVE = "its writer may be alive"
    DAMAGED = "it cannot be read"

    @property
    def flushes(self) -> bool:
        """Whether the region is claimed and flushed."""
        return self in _FLUSHING


_FLUSHING = {IdleReason.RELEASED, IdleReason.SILENT, IdleReason.OVERDUE, IdleReason.REQUESTED}


@dataclass(frozen=True, slots=True)
class RegionSigns:
    """What tells whether a region has rows to flush, and a writer that will do it.

    Attributes:
        writer_epoch: Of the newest claim.
        waiting_since: When the oldest unflushed row was written; None if every row is flushed.
        released: Whether the writer of that epoch gave the region back.
        last_sign: When the WAL or the manifest last changed; None if that was not looked at.
        is_ours: Whether the newest claim is by a writer of ours, which flushes by itself while it lives.
        problem: Why the region cannot be judged; empty if it can.
    """

    region_id: RegionId
    writer_epoch: int = 0
    waiting_since: datetime | None = None
    released: bool = False
    last_sign: datetime | None = None
    is_ours: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class IdleVerdict:
    """The decision about one region.

    Attributes:
        waiting_s: How long its oldest unflushed row has waited; None if every row is flushed.
    """

    region_id: RegionId
    writer_epoch: int
    reason: IdleReason
    waiting_s: float | None = None
    evidence: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "writer_epoch": self.writer_epoch,
            "flushes": self.reason.flushes,
            "reason": self.reason.value,
            "waiting_s": self.waiting_s,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class IdleBounds:
    """From which times on a region is flushed, in seconds; None = never.

    Attributes:
        min_age_s: Rows that wait for less are left alone.
        own_s: Silence after which a writer of ours counts as dead.
        foreign_s: The same for another program's.
        max_wait_s: Rows that wait longer are flushed although their writer lives.
        fence: Whether every region with rows is flushed.
    """

    min_age_s: float
    own_s: float
    foreign_s: float | None
    max_wait_s: float | None
    fence: bool = False

    @classmethod
    def of(cls, settings: Settings, *, due_only: bool, fence: bool) -> IdleBounds:
        """Return the bounds of a request.

        A living writer of ours that fails to flush tries again for some time, so it gets twice the age.
        """
        chosen = settings.flush
        own_s = max(chosen.quiet_s, 2 * settings.writer.max_memtable_age_s)
        return cls(chosen.min_age_s if due_only else 0.0, own_s, chosen.foreign_quiet_s, chosen.max_wait_s, fence)


@dataclass(frozen=True, slots=True)
class IdlePlan:
    """What a run does: a verdict for each region, by id."""

    table_uri: str
    regions: tuple[IdleVerdict, ...]

    @property
    def due(self) -> tuple[IdleVerdict, ...]:
        """The regions to flush."""
        return tuple(each for each in self.regions if each.reason.flushes)

    def having(self, reason: IdleReason) -> tuple[IdleVerdict, ...]:
        """Return the regions of one verdict."""
        return tuple(each for each in self.regions if each.reason is reason)

    def counts(self) -> Mapping[IdleReason, int]:
        """Return how many regions have each verdict; verdicts without a region are left out."""
        return {reason: count for reason in IdleReason if (count := len(self.having(reason)))}

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values; regions without unflushed rows are only counted."""
        shown = [each.to_dict() for each in self.regions if each.reason is not IdleReason.FLUSHED]
        return {"counts": {reason.value: count for reason, count in self.counts().items()}, "regions": shown}


def plan_idle(table_uri: str, signs: Sequence[RegionSigns], now: datetime, bounds: IdleBounds) -> IdlePlan:
    """Decide about each region; ``now`` is wall time in UTC."""
    return IdlePlan(table_uri, tuple(judge_region(each, now, bounds) for each in signs))


def judge_region(signs: RegionSigns, now: datetime, bounds: IdleBounds) -> IdleVerdict:
    """Decide about one region.

    A missing sign of life proves nothing, so a region without any is left alone.
    """
    if signs.problem:
        return IdleVerdict(signs.region_id, signs.writer_epoch, IdleReason.DAMAGED, evidence=signs.problem)
    if signs.waiting_since is None:
        return IdleVerdict(signs.region_id, signs.writer_epoch, IdleReason.FLUSHED)
    # Rows that came after `now` was read have not waited, which is long enough where nothing is asked for.
    waiting_s = max(0.0, (now - signs.waiting_since).total_seconds())
    reason, evidence = _of_waiting(signs, waiting_s, now, bounds)
    return IdleVerdict(signs.region_id, signs.writer_epoch, reason, waiting_s, evidence)


def _of_waiting(signs: RegionSigns, waiting_s: float, now: datetime, bounds: IdleBounds) -> tuple[IdleReason, str]:
    if waiting_s < bounds.min_age_s and not is_ahead(signs.waiting_since, now):
        return IdleReason.YOUNG, f"{waiting_s:.0f} s of {bounds.min_age_s:.0f} s"
    if signs.released:
        return IdleReason.RELEASED, f"epoch {signs.writer_epoch} is released"
    if bounds.fence:
        return IdleReason.REQUESTED, f"epoch {signs.writer_epoch} is fenced"
    if bounds.max_wait_s is not None and waiting_s >= bounds.max_wait_s:
        return IdleReason.OVERDUE, f"{waiting_s:.0f} s of {bounds.max_wait_s:.0f} s"
    return _of_silence(signs, now, bounds)


def _of_silence(signs: RegionSigns, now: datetime, bounds: IdleBounds) -> tuple[IdleReason, str]:
    whose, bound_s = ("ours", bounds.own_s) if signs.is_ours else ("another program's", bounds.foreign_s)
    if signs.last_sign is None:
        return IdleReason.ALIVE, "its last sign of life could not be found"
    silent_s = (now - signs.last_sign).total_seconds()
    if is_ahead(signs.last_sign, now):
        ahead = f"{whose}; its last sign of life lies {-silent_s:.0f} s ahead, so a clock is or was wrong"
        return IdleReason.ALIVE, f"{ahead}; if no writer is left, `memwal flush --fence` flushes its rows"
    if bound_s is None:
        return IdleReason.ALIVE, f"{whose}, silent for {silent_s:.0f} s; such a writer never counts as dead"
    found = f"{whose}, silent for {silent_s:.0f} s of {bound_s:.0f} s"
    return (IdleReason.SILENT if silent_s >= bound_s else IdleReason.ALIVE), found

"""How long a garbage collection keeps what nothing refers to, checked against unsafe settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import DAY_S, LONGEST_EPOCH_CHECK_S, GcSettings, Settings

MIN_ORPHAN_AGE_S = DAY_S
MIN_WAL_AGE_S = DAY_S
MIN_EPOCH_CHECKS = 2.0
"""A writer acknowledges up to one interval after it verified its epoch; the second is a margin."""
MIN_MANIFEST_AGE_S = MIN_EPOCH_CHECKS * LONGEST_EPOCH_CHECK_S
"""Old versions tell which entries every writer knows to be flushed."""

_FLAG = "allow_unsafe_retention"


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of one run at one moment.

    Attributes:
        now: Wall time in UTC.
        wal_age_s: Minimum age of a WAL entry: the larger of the configured age and ``settled_s``.
        settled_s: So long ago verified whoever may still acknowledge without a look, at the latest.
    """

    now: datetime
    gc: GcSettings
    wal_age_s: float
    settled_s: float

    @property
    def settled_before(self) -> datetime:
        """When whoever may still acknowledge without a look at its region verified its epoch, at the earliest."""
        return self.now - timedelta(seconds=self.settled_s)

    @property
    def old_before(self) -> datetime:
        """When the youngest WAL entry was written that may be deleted."""
        return self.now - timedelta(seconds=self.wal_age_s)

    @classmethod
    def of(cls, settings: Settings, now: datetime) -> Policy:
        """Return the policy of all settings (the writer's interval counts, too); unsafe ones are refused."""
        check_retention(settings.gc)
        return cls(now, settings.gc, wal_age_s(settings), settled_s(settings))

    def age_s(self, modified: datetime) -> float:
        """Return how long ago something was written; negative if the store's clock is ahead."""
        return (self.now - modified).total_seconds()


def settled_s(settings: Settings) -> float:
    """Return after how many seconds no writer acknowledges any more by an epoch that it verified before.

    Writers run in other processes, with intervals of their own, so the longest one counts.
    """
    of_any_writer = 0.0 if settings.gc.allow_unsafe_retention else MIN_EPOCH_CHECKS * LONGEST_EPOCH_CHECK_S
    return max(settings.gc.wal_epoch_checks * settings.writer.epoch_check_interval_s, of_any_writer)


def wal_age_s(settings: Settings) -> float:
    """Return the age in seconds below which no WAL entry is deleted."""
    return max(settings.gc.wal_min_age_s, settled_s(settings))


def check_retention(settings: GcSettings) -> None:
    """Refuse retention times that contradict each other, or that can lose acknowledged rows without the unsafe flag."""
    floors = {
        "orphan_age_s": MIN_ORPHAN_AGE_S,
        "wal_min_age_s": MIN_WAL_AGE_S,
        "wal_epoch_checks": MIN_EPOCH_CHECKS,
        "manifest_min_age_s": MIN_MANIFEST_AGE_S,
    }
    for name, floor in floors.items():
        value = getattr(settings, name)
        if value < floor and not settings.allow_unsafe_retention:
            raise InvalidRequestError(
                "this retention is unsafe for a table with live writers",
                remedy=f"raise gc.{name}, or set gc.{_FLAG} if the table has no live writer",
                setting=f"gc.{name}",
                found=value,
                minimum=floor,
                flag=f"gc.{_FLAG}",
            )
    if settings.manifest_min_age_s < settings.grace_s:
        raise InvalidRequestError(
            "manifest versions would be deleted while a grace period still depends on them",
            remedy="raise gc.manifest_min_age_s to at least gc.grace_s",
            manifest_min_age_s=settings.manifest_min_age_s,
            grace_s=settings.grace_s,
        )

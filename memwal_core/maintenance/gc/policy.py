"""For how long a garbage collection keeps what nothing refers to, checked against unsafe choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import DAY_S, GcSettings, LedgerSettings, Settings

MIN_ORPHAN_AGE_S = DAY_S
MIN_WAL_AGE_S = DAY_S
MIN_EPOCH_CHECKS = 2.0
"""A writer acknowledges up to one interval after it verified its epoch; the second is a margin."""
MIN_MANIFEST_AGE_S = 3600.0

_FLAG = "allow_unsafe_retention"


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of one run at one moment.

    Attributes:
        now: Wall time, timezone UTC.
        gc: What to keep.
        wal_age_s: Age that a WAL entry must have: the larger of the configured age and the
            multiple of the interval at which writers verify their epoch.
        ledger_age_s: Time since a version of a ledger was superseded after which it may go.
    """

    now: datetime
    gc: GcSettings
    wal_age_s: float
    ledger_age_s: float = field(default_factory=lambda: LedgerSettings().keep_versions_s)

    @classmethod
    def of(cls, settings: Settings, now: datetime) -> Policy:
        """Return the policy of some settings.

        Args:
            settings: All settings; the writer's interval counts, too.
            now: Wall time, timezone UTC.

        Raises:
            InvalidRequestError: See ``check_retention``.
        """
        check_retention(settings.gc)
        by_epoch = settings.gc.wal_epoch_checks * settings.writer.epoch_check_interval_s
        return cls(now, settings.gc, max(settings.gc.wal_min_age_s, by_epoch), settings.ledger.keep_versions_s)

    def age_s(self, modified: datetime) -> float:
        """Return how long ago something was written; negative if the store's clock is ahead."""
        return (self.now - modified).total_seconds()


def check_retention(settings: GcSettings) -> None:
    """Refuse retention times that can lose acknowledged rows.

    Raises:
        InvalidRequestError: A time is too short and the flag that allows it is not set, or the
            times contradict each other.
    """
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
                "this retention is unsafe while anybody writes the table",
                remedy=f"raise gc.{name}, or set gc.{_FLAG} if nobody writes the table",
                setting=f"gc.{name}",
                found=value,
                minimum=floor,
                flag=f"gc.{_FLAG}",
            )
    if settings.manifest_min_age_s < settings.grace_s:
        raise InvalidRequestError(
            "manifest versions would be deleted before they have told when a grace period began",
            remedy="raise gc.manifest_min_age_s to at least gc.grace_s",
            manifest_min_age_s=settings.manifest_min_age_s,
            grace_s=settings.grace_s,
        )

"""When what is under way began, over all processes of a test, so that garbage is judged as of then.

Tests give garbage collection ages of seconds. Real ages are longer than anything a stalled process may come back
to; so are these if they count from the beginning of the oldest work under way, however busy the machine is.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from memwal_core.clock import SystemClock
from memwal_core.errors import InternalError
from memwal_core.settings import (
    CompactSettings,
    GcSettings,
    IndexSettings,
    MergeSettings,
    Settings,
    StorageSettings,
    WalCollection,
    WriterSettings,
)
from testkit.processes.start import process_context

_PLACES = 16
_CLOCK = SystemClock()


class Horizon:
    """The beginnings of all work under way, in memory that processes share.

    A process gets it as an argument of ``start_process``; places are handed out by the test alone.
    """

    def __init__(self) -> None:
        """Begin with nothing under way."""
        self._began: Any = process_context().RawArray("d", [math.inf] * _PLACES)

    def enter(self) -> int:
        """Return a place for somebody who begins now.

        Raises:
            InternalError: There are too many at once.
        """
        for place, began in enumerate(self._began):
            if began == math.inf:
                self.begin(place)
                return place
        raise InternalError("too many processes share one horizon", remedy="let some leave", places=_PLACES)

    def begin(self, place: int) -> None:
        """Note that its work is over, and that it begins anew."""
        self._began[place] = _CLOCK.now().timestamp()

    def leave(self, place: int) -> None:
        """Note that nothing is under way there any more."""
        self._began[place] = math.inf

    def moment(self) -> datetime:
        """Return when the oldest work under way began; now if there is none."""
        return datetime.fromtimestamp(min(_CLOCK.now().timestamp(), *self._began), tz=UTC)


class HorizonClock(SystemClock):
    """A clock that shows the moment of a horizon; waiting and measuring are the system's.

    Args:
        horizon: Whose moment.
    """

    def __init__(self, horizon: Horizon) -> None:
        """Keep the horizon."""
        self._horizon = horizon

    def now(self) -> datetime:
        """Return the moment."""
        return self._horizon.moment()


def hurried_settings(
    memtable_rows: int, *, grace_s: float, orphan_age_s: float, codec: str = "lance", max_generations: int = 4096
) -> Settings:
    """Return settings under which every job has something to do within seconds.

    Args:
        memtable_rows: Rows after which a writer flushes.
        grace_s: See ``GcSettings``; like all ages here it counts from a horizon.
        orphan_age_s: The same; superseded manifest versions are kept as long.
        codec: Of the WAL of new regions.
        max_generations: That one merge takes.
    """
    return Settings(
        storage=StorageSettings(fsync=False),
        writer=WriterSettings.model_validate(
            {"max_memtable_rows": memtable_rows, "epoch_check_interval_s": 1, "new_region_codec": codec}
        ),
        merge=MergeSettings(max_generations=max_generations),
        index=IndexSettings(inline_snapshot_threshold=1),
        compact=CompactSettings(min_fragments=2),
        gc=GcSettings(
            grace_s=grace_s,
            collect_wal=WalCollection.ALL,
            wal_min_age_s=8,
            orphan_age_s=orphan_age_s,
            manifest_retention=2,
            manifest_min_age_s=orphan_age_s,
            allow_unsafe_retention=True,
        ),
    )

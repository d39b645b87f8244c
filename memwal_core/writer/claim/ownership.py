"""Whether the region still belongs to this writer: verified before acknowledging, remembered once it does not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, FencedError, MemwalError, UnavailableError
from memwal_core.region import ManifestStore, RegionManifest, check_epoch

_log = logging.getLogger(__name__)


class Ownership:
    """A claim on a region, and the error that ended it. Safe to call from several threads.

    ``verified_at`` is the monotonic time before the claim; ``check_interval_s`` is the longest time between a
    verification and an acknowledgement.
    """

    def __init__(
        self,
        manifests: ManifestStore,
        claimed: RegionManifest,
        verified_at: float,
        check_interval_s: float,
        clock: Clock,
    ) -> None:
        self.region_id = claimed.region_id
        self.epoch = claimed.writer_epoch
        self._manifests = manifests
        self._verified_at = verified_at
        self._interval_s = check_interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: MemwalError | None = None
        self._when_ended: list[Callable[[MemwalError], None]] = []

    @property
    def ended(self) -> MemwalError | None:
        """Why this writer must stop; None while it may go on."""
        return self._ended

    def require(self) -> None:
        """Raise the error that ended this writer, if any; makes no request."""
        if self._ended is not None:
            raise self._ended

    def on_end(self, callback: Callable[[MemwalError], None]) -> None:
        """Call a function once, from the thread that finds out, when the writer must stop."""
        self._when_ended.append(callback)

    def end(self, error: MemwalError) -> MemwalError:
        """Stop the writer for good; return the error that ended it, which is an earlier one if there is one."""
        with self._lock:
            first = self._ended is None
            ended = error if self._ended is None else self._ended
            self._ended = ended
        if first:
            _log.warning(
                "writer stops [region_id=%s, writer_epoch=%d, reason=%s]",
                self.region_id,
                self.epoch,
                type(error).__name__,
            )
            for callback in self._when_ended:
                callback(ended)
        return ended

    def check(self, stored: RegionManifest) -> None:
        """Require that a manifest version has our epoch, otherwise stop this writer; errors as for ``check_epoch``."""
        try:
            check_epoch(self.epoch, stored)
        except MemwalError as error:
            raise self.end(error) from None

    def verify_if_due(self) -> None:
        """Verify the epoch unless that was done within the interval, as an acknowledgement requires.

        Raises:
            FencedError: Another writer owns the region; this writer has stopped.
            CommitUnknownError: The manifest could not be read.
        """
        self.require()
        now = self._clock.monotonic()
        if now - self._verified_at <= self._interval_s:
            return
        try:
            stored = self._manifests.load(self.region_id)
        except UnavailableError as error:
            raise CommitUnknownError(
                "the rows are stored, but this writer could not verify that it still owns the region",
                remedy="put the same rows again, or call sync()",
                region_id=str(self.region_id),
                writer_epoch=self.epoch,
            ) from error
        self.check(stored)
        self._verified_at = now

    def is_confirmed(self) -> bool:
        """Return whether the region's epoch is still ours, read anew; does not end the writer."""
        return self._manifests.load(self.region_id).writer_epoch == self.epoch

    def fenced_by_entry(self, wal_id: int, found_epoch: int) -> MemwalError:
        """Stop because a WAL entry has a higher epoch; return the error to raise."""
        return self.end(
            FencedError(
                "a newer writer has already written to the region",
                remedy="stop this writer; open a new one only if this process should own the region",
                region_id=str(self.region_id),
                wal_id=wal_id,
                own_epoch=self.epoch,
                found_epoch=found_epoch,
            )
        )

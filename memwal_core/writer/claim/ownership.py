"""Whether the region still belongs to this writer: verified before acknowledging, remembered once it does not.

A verification holds for an interval from the moment at which it began. While a writer acknowledges, the next one runs
beside its writes from half of that interval on, so that no put waits for it; only after a rest, or where the store is
too slow, an acknowledgement waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    FencedError,
    InvalidRequestError,
    MemwalError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.region import ManifestStore, RegionManifest, check_epoch
from memwal_core.writer.claim.process import OwnProcess

_log = logging.getLogger(__name__)

AHEAD_THREAD = "memwal-epoch"

_AHEAD = 0.5
"""Share of the interval after which the next verification begins beside the writes."""


class Ownership:
    """A claim on a region, and the error that ended it. Safe to call from several threads.

    ``verified_at`` is the monotonic time before the claim; ``check_interval_s`` is the longest time between a
    verification and an acknowledgement; ``in_background`` allows a thread for verifications ahead of time.
    """

    def __init__(
        self,
        manifests: ManifestStore,
        claimed: RegionManifest,
        verified_at: float,
        check_interval_s: float,
        clock: Clock,
        *,
        in_background: bool = False,
    ) -> None:
        self.region_id = claimed.region_id
        self.epoch = claimed.writer_epoch
        self.process = OwnProcess()
        self._manifests = manifests
        self._verified_at = verified_at
        self._interval_s = check_interval_s
        self._clock = clock
        self._in_background = in_background
        self._lock = threading.Lock()
        self._verifying = threading.Lock()
        self._ended: MemwalError | None = None
        self._when_ended: list[Callable[[MemwalError], None]] = []

    @property
    def ended(self) -> MemwalError | None:
        """Why this writer must stop; None while it may go on."""
        return self._ended

    def require(self) -> None:
        """Raise the error that ended this writer, if any, and refuse a fork of its process; makes no request."""
        self.process.require(region_id=str(self.region_id))
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

    def verify_ahead(self) -> None:
        """Begin to verify the epoch in a thread if the next acknowledgements will ask for it; never waits.

        A verification ahead that fails is left to the acknowledgement; one that finds another epoch stops the writer.
        """
        if not self._in_background or self._age_s() <= _AHEAD * self._interval_s:
            return
        if not self._verifying.acquire(blocking=False):
            return
        try:
            threading.Thread(target=self._run_ahead, name=AHEAD_THREAD, daemon=True).start()
        except RuntimeError:  # No thread is to be had: the acknowledgement verifies.
            self._verifying.release()

    def verify_if_due(self) -> None:
        """Verify the epoch unless that was done within the interval, as an acknowledgement requires.

        Raises:
            FencedError: Another writer owns the region; this writer has stopped.
            CommitUnknownError: The manifest could not be read, or was refused.
        """
        self.require()
        if self._age_s() <= self._interval_s:
            return
        with self._verifying:  # One ahead may be under way; what it finds is as good.
            self.require()
            if self._age_s() > self._interval_s:
                self._verify()

    def _age_s(self) -> float:
        return self._clock.monotonic() - self._verified_at

    def _run_ahead(self) -> None:
        try:
            self._verify()
        except MemwalError as error:
            _log.info("epoch not verified ahead of time [region_id=%s, error=%s]", self.region_id, error)
        finally:
            self._verifying.release()

    def _verify(self) -> None:
        began = self._clock.monotonic()
        try:
            stored = self._manifests.load(self.region_id)
        except (UnavailableError, StoreRefusedError, InvalidRequestError) as error:
            raise CommitUnknownError(
                "the rows are stored, but this writer could not verify that it still owns the region",
                remedy=f"{error.remedy}: put the same rows again, or call sync()",
                region_id=str(self.region_id),
                writer_epoch=self.epoch,
                cause=error.what,
                reason=error.facts.get("reason"),
            ) from error
        self.check(stored)
        self._verified_at = began

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

"""Renewing a lease while one long step is under way."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from memwal_core.errors import FencedError, MemwalError
from memwal_core.maintenance.lease.held import Lease

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """A thread that renews a lease for as long as its job makes progress. For real jobs, not for tests of them.

    It decides nothing: a job that hangs is not renewed (``LeaseSettings.stall_s``), and a lost lease
    is noticed by the job itself at its next check.

    Args:
        lease: The lease to keep.
        every_s: Seconds between looks; well below the time to live.
    """

    def __init__(self, lease: Lease, every_s: float) -> None:
        """Prepare the thread."""
        self._lease = lease
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="memwal-lease", daemon=True)

    def __enter__(self) -> Self:
        """Begin to renew."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the thread; the lease stays as it is."""
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._lease.renew_if_due()
            except FencedError as error:
                _log.warning("lease lost, the job will stop at its next check: %s", error)
                return
            except MemwalError as error:
                _log.warning("lease not renewed, trying again [lease=%s]: %s", self._lease.ticket, error)

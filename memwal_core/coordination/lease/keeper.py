"""Renew a lease while one long step is under way."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from memwal_core.coordination.lease.held import Lease
from memwal_core.errors import FencedError

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """A thread that renews a lease for as long as its job makes progress. For real jobs, not for tests of them.

    It decides nothing: a stalled job is not renewed (``LeaseSettings.stall_s``), and the job itself notices a
    lost lease at its next check. ``every_s``, the seconds between two tries, must be well below the time to
    live.
    """

    def __init__(self, lease: Lease, every_s: float) -> None:
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
            except Exception as error:  # noqa: BLE001 - without this thread the lease would silently run out
                _log.warning("lease not renewed, retrying [lease=%s]: %r", self._lease.ticket, error)

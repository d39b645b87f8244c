"""Threads that work for a writer and end with it, even if it is never closed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

_Owner = TypeVar("_Owner")


class BackgroundLoop(Generic[_Owner]):
    """One thread that runs rounds of work on request, or when it is time.

    The thread references its owner only while a round is requested or runs, so an owner without other references is
    collected and its thread ends. ``work`` is one round, which must not raise; it returns the seconds until more is
    due, None to wait for a request.
    """

    def __init__(self, owner: _Owner, work: Callable[[_Owner], float | None], name: str) -> None:
        self._signal = threading.Event()
        self._stopped = threading.Event()
        self._reference = weakref.ref(owner)
        self._requested: list[_Owner | None] = []
        weakref.finalize(owner, _stop, self._signal, self._stopped)
        self._thread = threading.Thread(
            target=_run,
            args=(self._reference, work, self._signal, self._stopped, self._requested),
            name=name,
            daemon=True,
        )
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Start the thread if it does not run yet."""
        with self._lock:
            if not self._started and not self._stopped.is_set():
                self._started = True
                self._thread.start()

    def wake(self) -> None:
        """Request a round; the first request starts the thread."""
        self.start()
        self._requested[:] = [self._reference()]  # Or the owner could be gone before the round, and its work undone.
        self._signal.set()

    def stop(self) -> None:
        """Let the running round end, and the thread with it, and wait for that."""
        _stop(self._signal, self._stopped)
        with self._lock:
            started = self._started
        if started and threading.current_thread() is not self._thread:
            self._thread.join()


def _stop(signal: threading.Event, stopped: threading.Event) -> None:
    stopped.set()
    signal.set()


def _run(
    reference: weakref.ref[_Owner],
    work: Callable[[_Owner], float | None],
    signal: threading.Event,
    stopped: threading.Event,
    requested: list[_Owner | None],
) -> None:
    delay_s: float | None = 0.0
    while True:
        signal.wait(delay_s)
        signal.clear()
        owner = reference()
        requested.clear()
        if owner is None or stopped.is_set():
            return
        delay_s = work(owner)
        del owner

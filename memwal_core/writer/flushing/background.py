"""Threads that work for a writer and end with it, even if it is never closed."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_Owner = TypeVar("_Owner")


class BackgroundLoop(Generic[_Owner]):
    """One thread that runs rounds of work on request, or when it is time; where none can be had, a later request tries.

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
        self._arguments = (self._reference, work, self._signal, self._stopped, self._requested)
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> bool:
        """Request a round; the first request starts the thread. Return whether there is one."""
        is_started = self._start()
        self._requested[:] = [self._reference()]  # Or the owner could be gone before the round, and its work undone.
        self._signal.set()
        return is_started

    def stop(self) -> None:
        """Let the running round end, and the thread with it, and wait for that."""
        _stop(self._signal, self._stopped)
        with self._lock:
            thread = self._thread
        if thread is not None and threading.current_thread() is not thread:
            thread.join()

    def _start(self) -> bool:
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                thread = threading.Thread(target=_run, args=self._arguments, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    _log.warning("no thread is to be had yet [name=%s]: %s", self._name, error)
                else:
                    self._thread = thread
            return self._thread is not None


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

"""Calls of native libraries that wait for a store, ended for whoever called."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

_Result = TypeVar("_Result")

TIMEOUT_OPTION = "client_retry_timeout"
"""Storage option: seconds in which all attempts of a request end. Lance takes it, and lists longer all the same."""


def in_time(call: Callable[[], _Result], storage_options: Mapping[str, str]) -> _Result:
    """Call, and wait no longer than the options allow; without such an option, as on local disks, just call.

    A call that is given up goes on in a thread of its own, until the library gives up, too.

    Raises:
        TimeoutError: It did not end; the text says "operation timed out", as those of the libraries do.
    """
    stated = storage_options.get(TIMEOUT_OPTION, "")
    if not stated.isdecimal():
        return call()
    ends: queue.SimpleQueue[tuple[_Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            ends.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            ends.put((None, error))

    threading.Thread(target=run, name="memwal-waiting", daemon=True).start()
    try:
        result, error = ends.get(timeout=int(stated))
    except queue.Empty:
        raise TimeoutError(f"operation timed out: it did not end in {stated} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]

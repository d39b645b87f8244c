"""Decoding files in a process of its own, because Lance ends the process where a file is not as it expects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum, auto
from functools import cache
from typing import Any

from memwal_core.errors import CorruptionError, MemwalError, StoreRefusedError, UnavailableError
from memwal_core.native.child_processes import ChildProcesses, ProcessEndedError, ProcessSilentError, name_of


class Undecoded(StrEnum):
    """Why a file was not decoded."""

    DAMAGED = auto()
    REFUSED = auto()
    SILENT = auto()


_ERRORS: dict[Undecoded, tuple[type[MemwalError], str, str]] = {
    Undecoded.DAMAGED: (CorruptionError, "Lance cannot decode a file", "run `memwal repair`"),
    Undecoded.REFUSED: (StoreRefusedError, "the store refused a file", "check credentials and permissions"),
    Undecoded.SILENT: (UnavailableError, "a file could not be read", "back off and retry"),
}
_CHILD = "memwal_core.flushed.read.decoding_child"
_AT_ONCE = 2
_LONGEST_S = 600
"""For one file: far more than one needs that a merge can take."""


def decode_elsewhere(uri: str, storage_options: Mapping[str, str], **more: int | str) -> dict[str, Any]:
    """Decode a Lance file, or what else the process knows, in a process that may die of it; safe for threads.

    The first call costs half a second of processor time. What decodes ends by itself when it is not needed.

    Args:
        uri: Of a file or a table.
        storage_options: Of its store.
        more: A version of a table, and a fragment, or the name of an index.

    Returns:
        How many ``rows`` it has, and more.

    Raises:
        CorruptionError: It cannot be decoded, or ends the process that does; ``facts["reason"]`` says which.
        StoreRefusedError: The store refused it.
        UnavailableError: The store did not answer, or no process did.
    """
    try:
        answer = _processes(os.getpid()).ask({"uri": uri, "storage_options": dict(storage_options), **more})
    except OSError as error:
        answer = {"fault": Undecoded.SILENT, "reason": f"no process can be started to decode it: {error}"}
    except ProcessSilentError:
        answer = {"fault": Undecoded.SILENT, "reason": f"decoding did not end in {_LONGEST_S} s"}
    except ProcessEndedError as error:
        reason = f"it ends the process that decodes it, with {name_of(error.ended)}"
        answer = {"fault": Undecoded.DAMAGED, "reason": reason}
    if "rows" in answer:
        return answer
    kind, what, remedy = _ERRORS[Undecoded(answer["fault"])]
    raise kind(what, remedy=remedy, uri=uri, reason=answer["reason"])


@cache
def _processes(_owner: int) -> ChildProcesses:
    """Return those of one process: after a fork, the pipes belong to the parent."""
    return ChildProcesses(_CHILD, most=_AT_ONCE, longest_s=_LONGEST_S)

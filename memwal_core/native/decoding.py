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


def decode_file_in_child(uri: str, storage_options: Mapping[str, str]) -> int:
    """Decode every page of a Lance file in a child process, which may die of it; safe for threads.

    The first call costs half a second of processor time. The child ends by itself when it is not needed.

    Args:
        uri: Of the file.
        storage_options: Of its store.

    Returns:
        How many rows it has.

    Raises:
        CorruptionError: It cannot be decoded, or ends the process that does; ``facts["reason"]`` says which.
        StoreRefusedError: The store refused it.
        UnavailableError: The store did not answer, or no process did.
    """
    return int(_ask(uri, storage_options, {})["rows"])


def decode_fragment_in_child(
    uri: str, storage_options: Mapping[str, str], version: int, fragment_id: int
) -> tuple[int, int]:
    """Read every row of a fragment of a table in a child process; costs and errors as for ``decode_file_in_child``.

    Returns:
        How many rows were read, and how many it should have.
    """
    answer = _ask(uri, storage_options, {"version": version, "fragment": fragment_id})
    return int(answer["rows"]), int(answer["expected"])


def load_index_in_child(
    uri: str, storage_options: Mapping[str, str], version: int, name: str, *, everything: bool
) -> tuple[int, ...]:
    """Open an index of a table in a child process, or load all of it; otherwise as ``decode_file_in_child``.

    Returns:
        How many vectors each of its partitions has, over all its segments; nothing if it has none.
    """
    answer = _ask(uri, storage_options, {"version": version, "index": name, "everything": everything})
    return tuple(map(int, answer["partitions"]))


def _ask(uri: str, storage_options: Mapping[str, str], more: Mapping[str, int | str]) -> dict[str, Any]:
    try:
        answer = _processes(os.getpid()).ask({"uri": uri, "storage_options": dict(storage_options), **more})
    except OSError as error:
        answer = {"fault": Undecoded.SILENT, "reason": f"no process can be started to decode it: {error}"}
    except ProcessSilentError:
        answer = {"fault": Undecoded.SILENT, "reason": f"decoding did not end in {_LONGEST_S} s"}
    except ProcessEndedError as error:
        how = name_of(error.returncode)
        if error.crashed:
            answer = {"fault": Undecoded.DAMAGED, "reason": f"it ends the process that decodes it, with {how}"}
        else:  # Nothing is known of the file, and repairs give up the rows of damaged ones.
            reason = f"the process that decodes it ended with {how}: memory was short, or somebody ended it"
            answer = {"fault": Undecoded.SILENT, "reason": reason}
    if "rows" in answer:
        return answer
    kind, what, remedy = _ERRORS[Undecoded(answer["fault"])]
    raise kind(what, remedy=remedy, uri=uri, reason=answer["reason"])


@cache
def _processes(_owner: int) -> ChildProcesses:
    """Return those of one process: after a fork, the pipes belong to the parent."""
    return ChildProcesses(_CHILD, max_processes=_AT_ONCE, timeout_s=_LONGEST_S)

"""Copies of the recorded table: which there are after a cut, and what they must show."""

from __future__ import annotations

from dataclasses import dataclass

from testkit.powercut.expected import ExpectedRows
from testkit.powercut.operations import Recording

COPYING = ("backup", "relocate")
"""Operations that make copies, or make them whole."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that was begun.

    Attributes:
        uri: Its path.
        operation: What makes it, or makes it whole.
        expected: Which rows it may show: nothing was written while it was made.
        is_there: Whether it is a table, and not only the beginning of one.
        is_done: Whether the operation had ended.
    """

    uri: str
    operation: str
    expected: ExpectedRows
    is_there: bool
    is_done: bool


def copies_at(recording: Recording, place: int) -> list[Copied]:
    """Return the copies that were begun before a place."""
    found: dict[str, Copied] = {}
    for where, said in recording.marks():
        if where >= place:
            break
        if "moved" in said:
            expected = ExpectedRows.at(recording, where)
            found[said["moved"]] = Copied(said["moved"], "relocate", expected, is_there=True, is_done=False)
        elif said.get("begins") == "backup":
            expected = ExpectedRows.at(recording, where)
            found[said["target"]] = Copied(said["target"], "backup", expected, is_there=False, is_done=False)
        elif said.get("ends") in COPYING:
            begun = found[said["target"]]
            found[begun.uri] = Copied(begun.uri, begun.operation, begun.expected, is_there=True, is_done=True)
    return list(found.values())

"""All tables of one history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from memwal_core.rng import Rng
from testkit.hands.clients import Client
from testkit.hands.model import TableModel
from testkit.hands.place import TablePlace


@dataclass(frozen=True)
class CopyAside:
    """A copy put aside.

    Attributes:
        path: Where.
        uri: What it is a copy of.
        model: Of then.
    """

    path: Path
    uri: str
    model: TableModel


@dataclass
class HandledTables:
    """All tables of one history.

    Attributes:
        rng: Decides everything.
        directory: Where they lie.
        client: Who writes.
        places: The tables.
        backups: Copies put aside.
        touched: Tables beside the one of the step that the step may have changed.
        written: Number of writes so far.
        named: Number of names given so far.
    """

    rng: Rng
    directory: Path
    client: Client
    places: list[TablePlace]
    backups: list[CopyAside] = field(default_factory=list)
    touched: list[TablePlace] = field(default_factory=list)
    written: int = 0
    named: int = 0

    def new_name(self) -> str:
        """Return a name that nothing has yet."""
        self.named += 1
        return f"{chr(ord('a') + self.named % 26)}{self.named}"


Hand = Callable[[HandledTables, TablePlace], str]
"""Does something to a table, tells the model, and returns a few words."""

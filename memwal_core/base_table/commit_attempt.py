"""One attempt at a strict commit: what is asked for, and what became of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import lance

from memwal_core.format.table_manifest import MemWalEntry


@dataclass(frozen=True, slots=True)
class StrictCommit:
    """What to commit.

    Attributes:
        read_version: V, the version that everything here was derived from.
        operation: A ``lance.LanceOperation``.
        change_entry: New MemWAL index entry for the present one.
        transaction_id: Makes this attempt's bytes unlike those of any other; never used twice.
        opened: V in pylance's hands, which otherwise opens it again.
        require_read: Raises if V is not what it was when it was read; called just before V+1 is published.
    """

    read_version: int
    operation: Any
    change_entry: Callable[[MemWalEntry], MemWalEntry]
    transaction_id: uuid.UUID
    message: str
    opened: lance.LanceDataset | None = None
    require_read: Callable[[], object] = lambda: None


class Outcome(Enum):
    """What became of the version."""

    NOT_ASKED = "pylance gave up before it asked for the version"
    FAILED = "the new index could not be made; nothing was published"
    REFUSED = "somebody else made the version"
    PUBLISHED = "our bytes are the version"
    UNKNOWN = "the store did not say whether it took our bytes"

"""From new index details to the bytes that a strict commit publishes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from memwal_core.base_table.state import TableState
from memwal_core.base_table.table_manifest import MemWalEntry
from memwal_core.errors import InternalError
from memwal_core.ids import RegionId
from memwal_core.index import MemWalIndexDetails
from memwal_core.index.codec import decode_details, encode_details

_Catchup = Mapping[str, Mapping[RegionId, int]]


def entry_change(
    read: TableState, new: MemWalIndexDetails, index_id: uuid.UUID | None
) -> Callable[[MemWalEntry], MemWalEntry]:
    """Return the change of the staged MemWAL index to some details, keeping what its bytes hold beyond them.

    Lance keeps catch-up itself: in whatever commit, it credits indexes that cover all fragments
    with the merge progress of the version read, and drops entries of indexes that are gone. That
    stays, save where the details change an entry on purpose. The index keeps its id, under which
    its external snapshot lies, although Lance stages a new one with each such change.

    Args:
        read: The version that the details were derived from.
        new: The wanted details.
        index_id: A new id for the index, or None to keep that of ``read``.

    Returns:
        A function that raises ``InternalError`` if Lance staged any other change.
    """
    old = read.require_details()

    def change(entry: MemWalEntry) -> MemWalEntry:
        staged = decode_details(entry.payload)
        if read.entry is None or replace(staged, index_catchup=old.index_catchup) != old:
            raise InternalError(
                "pylance changed the MemWAL index by itself in this commit",
                remedy="report this; nothing was published",
                version=read.version,
            )
        wanted = replace(new, index_catchup=_combined(old.index_catchup, staged.index_catchup, new.index_catchup))
        return MemWalEntry(index_id or read.entry.index_id, encode_details(wanted, base=entry.payload))

    return change


def _combined(old: _Catchup, staged: _Catchup, new: _Catchup) -> _Catchup:
    """Return the entries that were changed on purpose, and Lance's where none was."""
    chosen = {
        name: new.get(name) if new.get(name) != old.get(name) else staged.get(name) for name in sorted({*staged, *new})
    }
    return MappingProxyType({name: entry for name, entry in chosen.items() if entry is not None})

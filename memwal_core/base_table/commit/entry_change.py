"""From new index details to the bytes that a strict commit publishes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from memwal_core.base_table.state import TableState
from memwal_core.errors import InternalError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import decode_details, encode_details
from memwal_core.format.table_manifest import MemWalEntry
from memwal_core.ids import RegionId

_Catchup = Mapping[str, Mapping[RegionId, int]]


def entry_change(
    read: TableState, new: MemWalIndexDetails, index_id: uuid.UUID | None
) -> Callable[[MemWalEntry], MemWalEntry]:
    """Return a function that changes the staged MemWAL index to ``new`` and keeps bytes that we do not know.

    Lance maintains catch-up itself: in every commit it credits indexes that cover all fragments with
    the merge progress of the version read, and drops entries of indexes that are gone. Those entries
    stay unless the details change them on purpose, but none goes beyond the new progress, which may be lower.
    Lance stages a new index id with each change; we keep that of ``read``, under which the external snapshot
    is stored, unless ``index_id`` is given.
    """
    old = read.require_details()

    def change(entry: MemWalEntry) -> MemWalEntry:
        staged = decode_details(entry.payload)
        if read.entry is None or not is_same_but_catchup(old, staged):
            raise InternalError(
                "pylance changed the MemWAL index by itself in this commit",
                remedy="report this; nothing was published",
                version=read.version,
            )
        credited = _at_most(staged.index_catchup, new.merged_generations)
        wanted = replace(new, index_catchup=_combined(old.index_catchup, credited, new.index_catchup))
        return MemWalEntry(index_id or read.entry.index_id, encode_details(wanted, base=entry.payload))

    return change


def is_same_but_catchup(old: MemWalIndexDetails, staged: MemWalIndexDetails) -> bool:
    """Tell whether Lance changed nothing but catch-up, and fields that we do not know.

    When it credits catch-up, it also writes defaults of its own fields that it had left out before.
    """
    return replace(staged, index_catchup=old.index_catchup, unknown=old.unknown) == old


def _at_most(catchup: _Catchup, merged: Mapping[RegionId, int]) -> _Catchup:
    return {
        name: MappingProxyType({each: min(covered, merged[each]) for each, covered in entry.items() if each in merged})
        for name, entry in catchup.items()
    }


def _combined(old: _Catchup, staged: _Catchup, new: _Catchup) -> _Catchup:
    """Return the entries that were changed on purpose, and Lance's for the others."""
    chosen = {
        name: new.get(name) if new.get(name) != old.get(name) else staged.get(name) for name in sorted({*staged, *new})
    }
    return MappingProxyType({name: entry for name, entry in chosen.items() if entry is not None})

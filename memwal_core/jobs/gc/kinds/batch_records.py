"""Records of Spark batch writes that have no name.

Each such write is a batch with a generated id that is never used again, so its records mean nothing once it is
over. Records of named batches and of streaming queries stay, because they make a repeated write a no-op.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import UNNAMED_STREAM, batch_stream_directory
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Item, Kind
from memwal_core.jobs.gc.kinds.staged_keys import plan_staged
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState

_UNNAMED_BATCHES = batch_stream_directory(UNNAMED_STREAM)
_CLAIMS = f"{_UNNAMED_BATCHES}/claims/"
_RECORD = re.compile(
    rf"{_UNNAMED_BATCHES}/(?P<batch>[0-9a-f]{{64}})/(?:(?:begun|done)\.json|shares/[0-9a-f]{{64}}\.json)", re.ASCII
)


class UnnamedBatchRecords:
    """Deletes the records of unnamed writes that recorded nothing for long; shows objects with another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every record of such writes.

        Claim notes, one per region, stay, because each claim replaces the previous one.
        """
        records = [info for info in state.unnamed_batches if not info.path.startswith(_CLAIMS)]
        return plan_staged(records, _batch_of, (Kind.BATCH_RECORD, "batch"), policy)

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete the records; a write that still runs and misses them at its end fails with a clear error."""
        deleter.each(list(items), deleter.delete_object)


def _batch_of(path: str) -> str:
    found = _RECORD.fullmatch(path)
    if found is None:
        raise InvalidRequestError("the object is not a record of a batch", remedy="ignore the object", path=path)
    return found["batch"]

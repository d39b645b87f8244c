"""Records of Spark's batch writes that have no name.

Each write is a batch with an id of its own that nobody gives again: once it is over, its records say
nothing to anybody. Records of named batches and of streaming queries stay; they are what makes a
repetition do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memwal_core.errors import InvalidRequestError
from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.items import Item, Kind
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.staged_keys import plan_staged
from memwal_core.maintenance.gc.state import GcState
from memwal_core.storage.layout import UNNAMED_STREAM, batch_stream_directory

_UNNAMED_BATCHES = batch_stream_directory(UNNAMED_STREAM)
_CLAIMS = f"{_UNNAMED_BATCHES}/claims/"
_RECORD = re.compile(
    rf"{_UNNAMED_BATCHES}/(?P<batch>[0-9a-f]{{64}})/(?:(?:begun|done)\.json|shares/[0-9a-f]{{64}}\.json)", re.ASCII
)


class UnnamedBatchRecords:
    """Deletes the records of writes without a name that recorded nothing for long; shows what has another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every record of such writes; notes of claims, one per region, are replaced and stay."""
        records = [info for info in state.unnamed_batches if not info.path.startswith(_CLAIMS)]
        return plan_staged(records, _batch_of, (Kind.BATCH_RECORD, "batch"), policy)

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; a write that still runs, and misses them at its end, fails and says so."""
        deleter.each(list(items), deleter.delete_object)


def _batch_of(path: str) -> str:
    found = _RECORD.fullmatch(path)
    if found is None:
        raise InvalidRequestError("this is not a record of a batch", remedy="ignore the object", path=path)
    return found["batch"]

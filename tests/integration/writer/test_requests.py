"""What writing asks of the store, counted exactly: it grows with the regions that are written, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.settings import Settings, StorageSettings
from memwal_core.storage import open_store
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.people import make_people_table, people

UNSYNCED = Settings(storage=StorageSettings(fsync=False))
NEW_REGION = 21
"""Reserve, create and mark it (7), release, epoch and fencing (13), the entry. With each further region that the table
had, every one cost three requests more."""

OLD_REGION = 15
LOOK = 1
"""After the claims of a batch, whether the table has another spec, in whose regions rows of the same keys may wait."""

FLUSH = 17
"""Flushed MemTable with its sidecars (7), the ends of its files, which only a local disk can lose (4), replay pointer
and record (6); what Lance does itself is not counted."""


@pytest.mark.parametrize("regions", [1, 8])
def test_p6_claims_puts_and_flushes_cost_the_same_for_each_region(tmp_path: Path, regions: int) -> None:
    """The first put into 128 new regions read 8,128 manifests, because each claim read them all."""
    uri = str(tmp_path / "t")
    make_people_table(uri, buckets=regions, settings=UNSYNCED)
    store = FaultyStore(open_store(uri, settings=UNSYNCED.storage))
    rows = people(*range(12 * regions))

    def requests() -> int:
        made = len(store.calls)
        store.calls.clear()
        return made

    for claim in (1 + NEW_REGION * regions + LOOK, OLD_REGION * regions + LOOK):
        table = BaseTable.open(uri, store=store, settings=UNSYNCED)
        with TableWriter.open(table) as writer:
            requests()
            assert len(writer.put(rows).regions) == regions
            assert requests() == claim
            writer.put(rows)
            assert requests() == regions
            writer.flush()
            assert requests() == FLUSH * regions

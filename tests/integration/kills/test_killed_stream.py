"""A streaming query into a table under kill -9: from its checkpoint it goes on with every row exactly once.

``KILL_ROUNDS=20`` kills it in the middle of twenty batches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.format.paths import ROWS_STAGING_DIRECTORY, batch_directory
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from testkit.processes.rounds import rounds
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model
from tests.integration.kills.spark_jobs import kill_whole, last_of, require_success, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DRIVER = Path(__file__).with_name("stream_driver.py")
STEP, SHARED, DELETED = 200, 60, 15
"""Each file has the last rows of the file before again, with other names, and deletes some of its keys."""

MOMENTS = ("rows of a region are written", "begun", "planned")
"""When the query is killed: after one of two regions, before any, and before the rows of the batch are known."""


class Stream:
    """The files of a stream, the query that writes them, and what the table must hold after all of them."""

    def __init__(self, table: BaseTable, root: Path) -> None:
        self.table = table
        self.expected: dict[int, str] = {}
        self.files = 0
        self.log = root / "log.txt"
        self._records = BatchRecords(table.store, table.clock)
        self._root = root
        self._source, self._checkpoint = root / "in", root / "checkpoint"
        self._source.mkdir()

    def add_file(self) -> None:
        """Add a batch; files are read in the order of their times."""
        first = self.files * STEP
        written = range(max(0, first - SHARED), first + STEP)
        deleted = range(first - SHARED - DELETED, first - SHARED) if self.files else range(0)
        name = f"file {self.files}"
        gone = pa.array([key in deleted for key in (*deleted, *written)])
        path = self._root / f"{self.files}.parquet"
        pq.write_table(people(*deleted, *written, name=name).append_column("gone", gone), path)
        os.utime(path, (1_700_000_000 + self.files, 1_700_000_000 + self.files))
        path.rename(self._source / path.name)
        self.files += 1
        self.expected |= dict.fromkeys(written, name)
        for key in deleted:
            del self.expected[key]

    def start(self, until: str) -> subprocess.Popen[bytes]:
        """Start the query from its checkpoint."""
        # A row or two per WAL entry make a batch long, so that a late look still meets it in the middle.
        variables = {**os.environ, "MEMWAL_INGEST__PUT_BYTES": "50"}
        places = [self.table.uri, self._source, self._checkpoint, self._root / "spark", until]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(DRIVER), *map(str, places)],
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def begun(self) -> int:
        """Return how many batches Spark has begun."""
        return len([each for each in (self._checkpoint / "offsets").glob("*") if each.name.isdecimal()])

    def batch(self, number: int) -> BatchId:
        """Return what a batch that Spark has begun is called."""
        return BatchId.numbered(json.loads((self._checkpoint / "metadata").read_text())["id"], number)

    def is_done(self, number: int) -> bool:
        return self._records.done(self.batch(number)) is not None

    def has_come_to(self, moment: str, number: int) -> bool:
        """Tell whether a batch is at some moment, or behind it."""
        if self.begun() <= number:
            return False
        batch = self.batch(number)
        found = self._records.done(batch) is not None or moment == "planned"
        if moment == "rows of a region are written":
            return found or self._records.count_shares(batch) > 0
        begun = f"{batch_directory(batch.stream, batch.batch)}/begun.json"
        return found or self.table.store.head(begun) is not None


@pytest.mark.req("RD-69", "WRT-84")
def test_query_that_is_killed_in_the_middle_of_batches_writes_every_row_once(tmp_path: Path) -> None:
    stream = Stream(make_people_table(str(tmp_path / "people.lance"), buckets=2), tmp_path)
    wanted, midway = rounds(len(MOMENTS)), 0
    while midway < wanted:
        stream.add_file()
        number, moment = stream.files - 1, MOMENTS[midway % len(MOMENTS)]
        query = stream.start("killed")
        try:
            wait_for(lambda: stream.has_come_to(moment, number), query, stream.log)  # noqa: B023 - called at once
        finally:
            kill_whole(query)
        # A batch that was faster than the kill was not killed in the middle, and is not counted.
        midway += not stream.is_done(number)
        assert stream.files < 5 * wanted, last_of(stream.log)
    last = stream.start("once")
    try:
        require_success(last, stream.log)
    finally:
        kill_whole(last)

    table = MergedReader(stream.table)
    rows = table.to_arrow()
    assert rows.num_rows == len(stream.expected)
    assert as_model(rows) == stream.expected
    assert as_model(table.to_arrow(consistency=Consistency.DURABLE)) == stream.expected
    assert stream.begun() == stream.files
    assert all(stream.is_done(number) for number in range(stream.files))
    assert list(stream.table.store.list_objects(ROWS_STAGING_DIRECTORY)) == []

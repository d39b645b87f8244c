"""kill -9 of a real writer process under load: every acknowledged row is there, none twice, deletes stay."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from testkit.processes.rounds import rounds
from testkit.processes.writer import Acknowledged, WriterSite, start_writer
from testkit.s3_server import S3Server
from testkit.simulation.view import lsm_view
from testkit.tables.people import make_people_table
from testkit.tables.readable import as_model

CHECK_EVERY = 10


def settings(codec: str) -> Settings:
    return Settings(
        storage=StorageSettings(fsync=False),
        writer=WriterSettings(max_memtable_rows=40, new_region_codec=codec, epoch_check_interval_s=1),
    )


def kill_writers(uri: str, options: Mapping[str, str] | None, chosen: Settings, times: int, longest_s: float) -> None:
    """Kill writer after writer in the middle of its work, and compare the table with what they acknowledged."""
    rng = random.Random(times)
    table = make_people_table(uri, buckets=2, storage_options=options, settings=chosen)
    reader = Table.open(uri, storage_options=options, settings=chosen, consistency=Consistency.DURABLE)
    admin = Table.open(uri, storage_options=options, settings=chosen)
    known = Acknowledged()
    clock = SystemClock()
    site = WriterSite(uri, chosen, options)
    for number in range(1, times + 1):
        # Half of them die young; the others have written much, however slow the machine is.
        writer = start_writer(site, number, acknowledged=1 if number % 2 else 8)
        clock.sleep(rng.uniform(0, longest_s))
        known.note(writer.kill())
        if number % CHECK_EVERY == 0:
            assert known.wrong(as_model(reader.to_arrow())) == {}
            admin.run(MergeRequest())
            assert known.wrong(as_model(reader.to_arrow())) == {}

    require_everything(table, known)
    assert known.writes > 3 * times
    assert known.unanswered > times / 4


def require_everything(table: BaseTable, known: Acknowledged) -> None:
    """Read in the plainest way, without the reader under test."""
    assert known.wrong(lsm_view(table)) == {}


@pytest.mark.slow
@pytest.mark.req("WRT-03", "WRT-38", "WRT-72", "WRT-87", "MEM-25")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
def test_killed_writers_lose_no_acknowledged_row(codec: str, tmp_path: Path) -> None:
    kill_writers(str(tmp_path / "people.lance"), None, settings(codec), rounds(10), 0.2)


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.req("WRT-03", "WRT-38", "WRT-72", "WRT-87")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
def test_on_s3_killed_writers_lose_no_acknowledged_row(codec: str, s3: S3Server) -> None:
    uri = s3.uri(f"bucket/killed-{codec}/people.lance")
    kill_writers(uri, dict(s3.storage_options), settings(codec), rounds(3), 1.0)

"""A checkpoint brings in what was written before it, from our writers and from LanceDB's client, or says what waits."""

from __future__ import annotations

import json
from pathlib import Path

import lancedb
import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.lancedb import maintained
from memwal_core.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


def put(table: lancedb.table.Table, number: int, text: str = "new") -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [number], "text": [text]}, schema=SCHEMA))


@pytest.fixture
def client(tmp_path: Path) -> lancedb.table.Table:
    table = lancedb.connect(str(tmp_path)).create_table("docs", pa.table({"id": [1], "text": ["old"]}, schema=SCHEMA))
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(LsmWriteSpec.unsharded())
    return table


def test_table_object_of_the_client_is_read_and_checkpointed(client: lancedb.table.Table) -> None:
    put(client, 1)
    put(client, 2)
    ours = maintained(client)
    assert ours.lookup(pa.table({"id": [1, 9]})).to_pylist() == [{"id": 1, "text": "new"}]
    assert sorted(ours.to_arrow()["id"].to_pylist()) == [1, 2]
    assert (client.count_rows(), ours.status().num_rows) == (1, 1)

    planned = ours.checkpoint(dry_run=True)
    done = ours.checkpoint()
    idle = ours.checkpoint()

    assert planned.rows_flushed == planned.generations == 0
    assert (done.outcome, idle.outcome) == (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)
    assert client.count_rows() == 2  # The object shows the new version.
    put(client, 3)
    client.close_lsm_writers()
    assert (ours.merge().outcome, client.count_rows()) == (JobOutcome.DONE, 3)


def test_rows_of_a_living_writer_wait_until_it_is_fenced(client: lancedb.table.Table) -> None:
    put(client, 2)

    def run(*options: str) -> tuple[int, dict[str, object]]:
        ended = CliRunner().invoke(app, ["checkpoint", client.uri, "--json", *options])
        return ended.exit_code, json.loads(ended.stdout)

    code, waiting = run()
    assert (code, waiting["outcome"], len(waiting["unflushed_regions"])) == (4, "conflict", 1)
    code, planned = run("--fence", "--dry-run")
    assert (code, planned["outcome"], planned["rows_flushed"]) == (0, "planned", 0)
    code, done = run("--fence")
    assert (code, done["rows_flushed"], done["generations"], done["unflushed_regions"]) == (0, 1, 1, [])
    assert run()[0] == 3
    assert Table.open(client.uri).base.state().num_rows == 2


def test_our_own_writers_are_flushed_and_stay_open(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, key="id", buckets=2)
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2, 3], "text": ["a"] * 3}, schema=SCHEMA))
        assert table.checkpoint().outcome is JobOutcome.DONE
        assert table.base.state().num_rows == 3
        writer.put(pa.table({"id": [4], "text": ["a"]}, schema=SCHEMA))
        other = Table.open(table.uri).checkpoint()
        assert (other.outcome, len(other.rounds[-1].unflushed)) == (JobOutcome.CONFLICT, 1)
        assert "rows wait in the WAL of 1 region" in other.why()
        assert table.checkpoint().outcome is JobOutcome.DONE
    assert table.base.state().num_rows == 4


def test_other_objects_are_refused(client: lancedb.table.Table) -> None:
    with pytest.raises(InvalidRequestError, match="not a table object"):
        maintained(client.uri)
    with pytest.raises(InvalidRequestError, match="branch"):
        maintained(client.branches.create("b"))
    lancedb.connect(str(Path(client.uri).parent)).drop_table("docs")
    with pytest.raises(ObjectNotFoundError):
        maintained(client)


def test_job_on_a_dropped_table_does_not_bring_its_name_back(client: lancedb.table.Table) -> None:
    """Its lease and its ledger were written below the address, so that the client listed the table again."""
    ours, database = maintained(client), lancedb.connect(str(Path(client.uri).parent))
    ours.checkpoint()
    database.drop_table("docs")
    for job in (ours.merge, ours.checkpoint, lambda: ours.run(CompactRequest())):
        with pytest.raises(ObjectNotFoundError, match="gone"):
            job()
    assert database.list_tables().tables == []

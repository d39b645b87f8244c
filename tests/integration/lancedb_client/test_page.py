"""The commands of the page on LanceDB run as they stand, beside a client whose answers stay what they were."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import lancedb
import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec
from lancedb.index import FTS, BTree, IvfFlat
from typer.testing import CliRunner

from memwal_core.cli.app import app

pytestmark = pytest.mark.slow  # Each command is followed by queries of every kind.

PAGE = Path(__file__).resolve().parents[3] / "docs" / "lancedb.md"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
SPECS = {
    "unsharded": LsmWriteSpec.unsharded(),
    "bucket": LsmWriteSpec.bucket("id", 2),
    "identity": LsmWriteSpec.identity("tenant"),
}


def rows(*ids: int, text: str) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "tenant": [f"t{number % 2}" for number in ids],
            "text": [f"{text} {number}" for number in ids],
            "vector": [[float(number), 0.0] for number in ids],
        },
        schema=SCHEMA,
    )


def answers(table: lancedb.table.Table) -> dict[str, object]:
    """Ask each kind of query that the client has."""

    def ids(query: object) -> list[int]:
        return sorted(query.to_arrow()["id"].to_pylist())  # type: ignore[attr-defined]

    return {
        "scan": sorted(
            zip(*table.search().limit(100).to_arrow().select(["id", "text"]).to_pydict().values(), strict=True)
        ),
        "where": ids(table.search().where("text LIKE 'new%'").limit(100)),
        "vector": ids(table.search([3.0, 0.0]).limit(100)),
        "text": ids(table.search("new", query_type="fts", fts_columns="text").limit(100)),
    }


def upsert(table: lancedb.table.Table, number: int) -> None:
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(number, text="new"))
    table.close_lsm_writers()


@pytest.mark.parametrize("kind", list(SPECS))
def test_commands_of_the_page_change_no_answer_of_the_client(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = lancedb.connect("db").create_table("docs", rows(*range(6), text="old"))
    table.create_index("text", config=FTS())
    table.create_index("tenant", config=BTree())
    table.create_index("vector", config=IvfFlat(num_partitions=1))
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(SPECS[kind])
    for number in (1, 3, 8):
        upsert(table, number)
    expected = answers(table)
    assert expected["where"] == expected["text"] == [1, 3, 8]
    assert expected["vector"] == [0, 1, 2, 3, 4, 5, 8]

    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    commands = [line.split()[1:] for block in blocks for line in block.splitlines() if line.startswith("memwal ")]
    assert [command[0] for command in commands] == [
        "tables",
        "status",
        "maintain",
        "flush",
        "merge",
        "catchup",
        "checkpoint",
        "count",
    ]
    codes = {}
    for number, command in enumerate(commands):
        ended = CliRunner().invoke(app, command)
        codes[command[0]] = ended.exit_code
        assert ended.exit_code in {0, 3}, (command, ended.output, ended.exception)
        assert answers(table) == expected, command
        if command[0] == "maintain":
            upsert(table, 8)  # The client goes on, and leaves something to the job after it.
            assert answers(table) == expected, number
    assert (codes["maintain"], codes["merge"]) == (0, 0)
    assert ended.output.strip() == "7"
    assert lancedb.connect("db").open_table("docs").count_rows() == 7  # It counts what is merged.

    example, plain = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(example + plain)
    assert f"```text\n{said.getvalue()}```" in PAGE.read_text()
    assert lancedb.connect("db").open_table("plain").count_rows() == 7


def test_key_that_may_be_null_is_made_ready_and_a_fenced_client_writes_again(tmp_path: Path) -> None:
    table = lancedb.connect(str(tmp_path)).create_table("docs", pa.table({"id": [1, 2], "text": ["a", "b"]}))
    table.alter_columns({"path": "id", "nullable": False})
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(SPECS["unsharded"])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])

    def put(number: int) -> None:
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.table({"id": [number], "text": ["new"]}, schema=schema))

    put(3)
    assert [
        CliRunner().invoke(app, each).exit_code for each in (["flush", table.uri, "--fence"], ["merge", table.uri])
    ] == [0, 0]
    with pytest.raises(RuntimeError, match="fenced"):
        put(4)
    with pytest.raises(RuntimeError, match="fenced"):
        table.close_lsm_writers()
    put(4)
    table.close_lsm_writers()

    assert CliRunner().invoke(app, ["count", table.uri]).output.strip() == "4"


def test_client_shows_deleted_rows_again_where_its_write_spec_went_and_came_back(tmp_path: Path) -> None:
    """When a release of the client mends this, the page may offer a way back to a plain table."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = lancedb.connect(str(tmp_path)).create_table("docs", schema=schema)
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(SPECS["unsharded"])
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [1, 2]}, schema=schema))
    table.close_lsm_writers()
    assert CliRunner().invoke(app, ["checkpoint", table.uri]).exit_code == 0
    table.unset_lsm_write_spec()
    table.delete("id = 2")
    assert table.search().to_arrow()["id"].to_pylist() == [1]

    table.set_lsm_write_spec(SPECS["unsharded"])

    assert sorted(table.search().to_arrow()["id"].to_pylist()) == [1, 2]
    assert CliRunner().invoke(app, ["merge", table.uri]).exit_code != 0


@pytest.mark.parametrize("call", ["flush_lsm", "compact_lsm", "checkpoint_lsm", "get_lsm_stats"])
def test_client_has_none_of_the_calls_that_the_page_replaces(tmp_path: Path, call: str) -> None:
    """When a release of the client has them, the page has to say something else."""
    table = lancedb.connect(str(tmp_path)).create_table("docs", schema=SCHEMA)
    with pytest.raises(NotImplementedError):
        getattr(table, call)()

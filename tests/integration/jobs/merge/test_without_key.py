"""Tables without a primary key: pylance's own writer appends to them, and a merge appends to the base table."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.verify import verify_merge
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.table import Table

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
REGIONS = [str(uuid.UUID(int=number + (4 << 76) + (8 << 60))) for number in (1, 2)]
FIRST = [{"a": 1, "b": "base"}, {"a": 1, "b": "base"}]


def _rows(*values: int, name: str) -> pa.Table:
    return pa.table([list(values), [name] * len(values)], schema=SCHEMA)


def _append(uri: str, region: str, *batches: pa.Table) -> None:
    """Write one generation with pylance."""
    with lance.dataset(uri).mem_wal_writer(region) as writer:
        for batch in batches:
            writer.put(batch)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table with two equal rows, and regions that append equal rows."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.Table.from_pylist(FIRST, SCHEMA), uri).initialize_mem_wal()
    _append(uri, REGIONS[0], _rows(1, 1, name="base"), _rows(2, name="one"))
    _append(uri, REGIONS[0], _rows(2, name="one"))
    _append(uri, REGIONS[1], _rows(2, 3, name="one"))
    return uri


ALL = sorted([(1, "base")] * 4 + [(2, "one")] * 3 + [(3, "one")])


def _found(rows: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["a"], row["b"]) for row in rows.to_pylist())


def test_s8_a_merge_appends_every_row_once_with_its_progress(uri: str) -> None:
    """Such tables could not be merged: "the table defines no primary key"."""
    table = Table.open(uri)
    report = table.run(MergeRequest())
    assert report.outcome is JobOutcome.DONE
    assert [commit.upserts for commit in report.commits] == [6]
    assert "no primary key" in report.strategy.reason
    assert _found(lance.dataset(uri).to_table()) == ALL
    merged = {str(region): number for region, number in table.base.state().details.merged_generations.items()}
    assert merged == {REGIONS[0]: 2, REGIONS[1]: 1}
    assert verify_merge(table.base, table.base.state().details.merged_generations).rows == len(ALL)
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert _found(Table.open(uri).scan().to_arrow()) == ALL
    assert lance.dataset(uri).version == report.version_after


def test_s8_rows_and_progress_are_one_version(uri: str) -> None:
    before = lance.dataset(uri).version
    Table.open(uri).run(MergeRequest())
    assert lance.dataset(uri).version == before + 1
    assert _found(lance.dataset(uri, version=before).to_table()) == [(1, "base")] * 2


def test_s8_a_scan_is_the_union_of_all_rows(uri: str) -> None:
    view = Table.open(uri).view()
    assert _found(view.scan().to_arrow()) == ALL
    assert view.scan().count() == len(ALL)
    two = ScanRequest(filter_sql="a = 2")
    assert view.scan(two).count() == 3
    assert _found(view.scan(two).to_arrow()) == [(2, "one")] * 3
    assert view.scan(ScanRequest(columns=("b",))).to_arrow().num_rows == len(ALL)
    assert sorted(view.scan(ScanRequest(columns=("_gen",))).to_arrow().column("_gen").to_pylist())[2:] == [1] * 5 + [2]


def test_s8_a_column_that_was_added_is_null_in_older_rows(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.schema([pa.field("c", pa.int32())]))
    found = Table.open(uri).scan().to_arrow()
    assert (_found(found), found.column("c").null_count) == (ALL, len(ALL))
    Table.open(uri).run(MergeRequest())
    merged = lance.dataset(uri).to_table()
    assert (_found(merged), merged.column("c").null_count) == (ALL, len(ALL))


def test_s8_what_needs_a_key_is_refused(uri: str) -> None:
    table = Table.open(uri)
    view = table.view()
    for query in (
        lambda: view.lookup(pa.table({"a": [1]})),
        lambda: view.full_text_search(TextQuery("b", "one")),
        lambda: table.writer().put(_rows(1, name="ours")),
    ):
        with pytest.raises(InvalidRequestError, match="no primary key"):
            query()


def test_s8_equal_rows_appended_while_a_merge_ran_are_kept(uri: str) -> None:
    table = Table.open(uri)
    table.run(MergeRequest())
    _append(uri, REGIONS[0], _rows(2, name="one"))
    _append(uri, REGIONS[1], _rows(9, name="late"))
    Table.open(uri).run(MergeRequest())
    assert _found(lance.dataset(uri).to_table()) == sorted([*ALL, (2, "one"), (9, "late")])

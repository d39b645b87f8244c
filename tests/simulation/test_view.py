"""The view that the simulation compares with its model: a look reads what is new, and misses what is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.simulation.view import PlainView, lsm_view
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people


@pytest.fixture
def uri(tmp_path) -> str:
    """A table with a base row, a flushed MemTable and a WAL entry, all of one region."""
    address = str(tmp_path / "t")
    table = make_people_table(address, rows=people(1), buckets=1)
    write_generations(table, [2], name="flushed")
    with TableWriter.open(table) as writer:
        writer.put(people(3, name="logged"))
    return address


def looked(view: PlainView, uri: str) -> PlainView:
    view.look(list(Table.open(uri).base.store.list_objects("")))
    return view


def test_a_look_shows_what_was_written_since_the_one_before(uri):
    table = Table.open(uri)
    view = looked(PlainView(table.base), uri)
    before = view.versions()[-1]
    assert view.rows(before) == lsm_view(table.base) == {1: "p1", 2: "flushed", 3: "logged"}

    table.run(MergeRequest())
    write_generations(table.base, [2], name="later")

    looked(view, uri)
    newest = view.versions()[-1]
    assert newest > before
    assert view.rows(newest) == lsm_view(table.base) == {1: "p1", 2: "later", 3: "logged"}


@pytest.mark.parametrize("gone", ["data", "_mem_wal/*/*_gen_*", "_versions"])
def test_a_look_cannot_read_what_is_gone_although_the_one_before_could(uri, gone):
    view = looked(PlainView(Table.open(uri).base), uri)
    version = view.versions()[-1]
    assert view.rows(version)
    listed = list(Table.open(uri).base.store.list_objects(""))

    (directory,) = Path(uri).glob(gone)
    shutil.rmtree(directory)
    view.look([each for each in listed if Path(uri, each.path).exists()])

    with pytest.raises(Exception, match=r"(?i)not found|does not exist"):
        view.rows(version)


def test_a_look_misses_rows_of_a_wal_entry_that_is_gone(uri):
    view = looked(PlainView(Table.open(uri).base), uri)
    version = view.versions()[-1]
    assert 3 in view.rows(version)

    newest = max(Path(uri).glob("_mem_wal/*/wal/*"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()

    assert 3 not in looked(view, uri).rows(version)

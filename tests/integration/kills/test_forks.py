"""A process forks while it has an open writer, as ``multiprocessing`` does."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.errors import ConflictError, MemwalError
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, TableWriter
from testkit.tables.people import make_people_table, people


def in_a_fork(step: Callable[[], object]) -> str:
    """Return how a step ended in a fork of this process: the name of its error, or ``ok``."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Forks of processes with threads are what is tried.
        child = os.fork()
    if child == 0:
        told = "an error that is not ours"
        try:
            step()
            told = "ok"
        except MemwalError as error:
            told = f"{type(error).__name__}: {error.what}"
        finally:
            os.write(write, told.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told_by_child:
        told = told_by_child.read()
    os.waitpid(child, 0)
    return told


CALLS: dict[str, Callable[[TableWriter], object]] = {
    "put": lambda writer: writer.put(people(2, name="child")),
    "delete": lambda writer: writer.delete(people(1).select(["id"])),
    "flush": lambda writer: writer.flush(),
    "put to the region": lambda writer: _region(writer).put(people(2, name="child")),
    "put_async to the region": lambda writer: _region(writer).put_async(people(2, name="child")).result(60),
    "delete in the region": lambda writer: _region(writer).delete(people(1).select(["id"])),
    "sync of the region": lambda writer: _region(writer).sync(),
    "rotation of the region": lambda writer: _region(writer).rotate(),
    "flush of the region": lambda writer: _region(writer).flush(),
}


def _region(writer: TableWriter) -> RegionWriter:
    (region,) = writer.writers.values()
    return region


@pytest.mark.parametrize("call", CALLS)
def test_a_fork_writes_nothing_and_its_parent_goes_on(tmp_path: Path, call: str) -> None:
    """A table's writer waited for ever for threads; that of a region used up the parent's next entry."""
    table = Table.open(make_people_table(str(tmp_path / "t"), buckets=1).uri)
    with table.writer() as writer:
        writer.put(people(1))

        assert "the writer was opened in another process" in in_a_fork(lambda: CALLS[call](writer))

        writer.put(people(3))
        assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 3]


def test_a_fork_that_ends_gives_no_region_of_its_parent_back(tmp_path: Path) -> None:
    table = Table.open(make_people_table(str(tmp_path / "t"), buckets=1).uri)
    with table.writer() as writer:
        writer.put(people(1))

        assert in_a_fork(writer.close) == in_a_fork(_region(writer).close) == "ok"

        with pytest.raises(ConflictError, match="seems to have a live writer"), table.writer() as rival:
            rival.put(people(2))
        writer.put(people(3))

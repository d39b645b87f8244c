"""A table with rows in every place where rows can be."""

from __future__ import annotations

import lance

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import keys_of


def make_layered_table(uri: str) -> None:
    """Base rows 0 to 199 in two fragments; then merged, flushed and unflushed changes, deletes among them."""
    base = make_people_table(uri, rows=people(*range(100)), buckets=4)
    lance.write_dataset(people(*range(100, 200)), uri, mode="append")
    settings = Settings(writer=WriterSettings(background_flush=False))
    with TableWriter.open(base.with_settings(settings)) as writer:
        writer.put(people(*range(40), 200, name="merged"))
        writer.flush()
        Table.open(uri).run(MergeRequest())
        writer.put(people(*range(20, 60), 201, name="flushed"))
        writer.delete(keys_of(*range(50, 70)))
        writer.flush()
        writer.put(people(55, 100, 202, name="again"))
        writer.flush()
        writer.put(people(1, 150, 300, name="unflushed"))
        writer.delete(keys_of(2))

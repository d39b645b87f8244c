"""What tasks of Spark read together agrees with a dictionary, whatever was written, flushed and merged before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.spark_source import LoadedFrame
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model, keys_of

KEYS = 12

keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=4)
steps_of = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "put", "delete"]), keys, st.sampled_from(["ant", "bee", "cat"])),
        st.tuples(st.sampled_from(["flush", "flush", "merge"]), st.none(), st.none()),
    ),
    min_size=4,
    max_size=12,
)


def _check(uri: str, flushed: dict[int, str], now: dict[int, str], key_bytes: int) -> None:
    for consistency, model in (("latest", flushed), ("durable", now)):
        options = {"uri": uri, "consistency": consistency, "partition_rows": 4, "key_bytes": key_bytes}
        assert as_model(LoadedFrame(**options).rows()) == model
        bees = as_model(LoadedFrame(**options, filter="name = 'bee' AND id < 8").rows())
        assert bees == {key: name for key, name in model.items() if name == "bee" and key < 8}


@pytest.mark.req("RD-69", "RD-06", "RD-39")
@settings(derandomize=True, deadline=None, max_examples=8)
@given(steps=steps_of, key_bytes=st.sampled_from([1, 1 << 20]))
def test_tasks_together_read_the_model_after_any_history(
    steps: list[tuple[str, list[int] | None, str | None]], key_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        uri = str(Path(directory) / "t")
        base = make_people_table(uri, rows=people(*range(6)), buckets=2)
        flushed = {key: f"p{key}" for key in range(6)}
        now = dict(flushed)
        writer_settings = Settings(writer=WriterSettings(background_flush=False))
        with TableWriter.open(base.with_settings(writer_settings)) as writer:
            for name, ids, value in steps:
                match name:
                    case "put":
                        writer.put(people(*ids, name=value))
                        now.update(dict.fromkeys(ids, value))
                    case "delete":
                        writer.delete(keys_of(*ids))
                        now = {key: kept for key, kept in now.items() if key not in ids}
                    case "flush":
                        writer.flush()
                        flushed = dict(now)
                    case "merge":
                        Table.open(uri).run(MergeRequest())
                        _check(uri, flushed, now, key_bytes)
            _check(uri, flushed, now, key_bytes)

"""Executors write fragments and deletion vectors, the driver makes one commit of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table.commit.row_changes import named_files
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import FoundT, GivenT
from memwal_core.jobs.sharing.place import Engine
from memwal_core.settings import MergeSettings, Settings
from memwal_core.spark.executors import SparkExecutors
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, PRIMARY_KEY_METADATA, people

ON_EXECUTORS = MergeSettings(executors_min_bytes=0, unit_bytes=1)
"""However little there is to do."""

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def make_table(uri: str) -> None:
    """Four regions (keys modulo 4) over a base of five fragments."""
    lance.write_dataset(people(*range(100)), uri, max_rows_per_file=20)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    for region in range(4):
        history = [
            [Put(people(region, 40 + region, 400 + region, name="g1"))],
            [Delete(keys(4 + region, 400 + region)), Put(people(404 + region, name="g2"))],
        ]
        write_native_generations(uri, native_region_id(region), history)


def rows(uri: str) -> pa.Table:
    lance.dataset(uri).validate()
    return lance.dataset(uri).to_table().sort_by("id")


def unneeded(uri: str) -> list[str]:
    named: set[str] = set()
    for version in lance.dataset(uri).versions():
        named |= named_files(lance.dataset(uri, version=version["version"]))
    found = {str(path.relative_to(uri)) for part in ("data", "_deletions") for path in Path(uri, part).glob("*")}
    staged = [str(path) for path in Path(uri, "_mem_wal", "_staging").rglob("*") if path.is_file()]
    return sorted(found - named) + staged


class RepeatedAttempts(SparkExecutors):
    """A platform that runs every task twice and uses the second outcome, as speculation may."""

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        first, second = (super(RepeatedAttempts, self).map(stage, function, shares) for _ in range(2))
        # Fragments have names of their own each time, deletion vectors have not.
        assert (first == second) is (stage == "merge: find what they supersede")
        return second


@pytest.mark.req("MRG-26", "MRG-29")
@pytest.mark.parametrize("kind", [SparkExecutors, RepeatedAttempts])
def test_executors_make_one_commit_of_all_regions_like_one_process(tmp_path, spark, kind):
    uri, alone = str(tmp_path / "spark"), str(tmp_path / "alone")
    make_table(uri)
    shutil.copytree(uri, alone)
    Table.open(alone).run(MergeRequest(engine=Engine.LOCAL))
    admin = Table.open(uri, settings=Settings(merge=ON_EXECUTORS))
    version = admin.base.state().version

    report = admin.run(MergeRequest(), executors=kind(lambda: spark, admin.base))

    assert report.outcome is JobOutcome.DONE
    assert report.place.on_executors
    assert report.place.reason.endswith(" are at least merge.executors_min_bytes, which is 0 B")
    assert [commit.version for commit in report.commits] == [version + 1]
    assert len(report.commits[0].marks) == 4
    assert rows(uri).equals(rows(alone))
    assert unneeded(uri) == []
    assert report.leftovers == ()


def test_column_that_the_generations_lack_is_filled_on_executors(tmp_path, spark):
    uri = str(tmp_path / "t")
    make_table(uri)
    lance.dataset(uri).add_columns(pa.field("extra", pa.int32()))
    lance.dataset(uri).update({"extra": "CAST(id + 1000 AS INT)"})
    admin = Table.open(uri, settings=Settings(merge=ON_EXECUTORS))

    admin.run(MergeRequest(), executors=SparkExecutors(lambda: spark, admin.base))

    found = rows(uri)
    extra = dict(zip(found["id"].to_pylist(), found["extra"].to_pylist(), strict=True))
    assert (extra[0], extra[43], extra[407]) == (1000, 1043, None)
    assert 4 not in extra


def test_text_keys_cross_the_executors_in_several_rounds(tmp_path, spark):
    uri = str(tmp_path / "t")
    schema = pa.schema(
        [pa.field("word", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("n", pa.int64())]
    )
    words = [f"{number:05d}-" + "x" * 200 for number in range(12_000)]
    lance.write_dataset(pa.table({"word": words, "n": [0] * len(words)}, schema=schema), uri, max_rows_per_file=5_000)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    for region in range(2):
        own = words[region::2]
        put = pa.table({"word": own, "n": [1 + region] * len(own)}, schema=schema)
        write_native_generations(uri, native_region_id(region), [[Put(put)]])
    admin = Table.open(
        uri, settings=Settings(merge=MergeSettings(key_bytes=1024 * 1024, unit_bytes=1, executors_min_bytes=0))
    )

    admin.run(MergeRequest(), executors=SparkExecutors(lambda: spark, admin.base))

    found = lance.dataset(uri).to_table().sort_by("word")
    assert found["word"].to_pylist() == words
    assert found["n"].to_pylist() == [1, 2] * 6_000


def test_table_in_memory_is_refused(spark):
    nowhere = SimpleNamespace(uri="memory://t", store=open_store("memory://t"))

    with pytest.raises(InvalidRequestError, match="another process"):
        SparkExecutors(lambda: spark, nowhere)

"""The verification as a job: it finds repeated keys, wherever it counts, and changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table.keys.counts import count_keys
from memwal_core.coordination.freeze import FreezeCause
from memwal_core.errors import DuplicateKeysError, InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.verify.facts import DUPLICATES_FACT, VERIFY
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings import ExecutorSettings, Settings
from memwal_core.table import Table
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.people import make_people_table, people

SMALL_PARTS = Settings(executors=ExecutorSettings(part_bytes=64, min_bytes=400))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of three fragments with 50 keys, 8 bytes each."""
    base = make_people_table(str(tmp_path / "t"), rows=people(*range(20)), buckets=2)
    for begin in (20, 35):
        lance.write_dataset(people(*range(begin, begin + 15)), base.uri, mode="append")
    return Table.open(base.uri, settings=SMALL_PARTS)


def verified(table: Table, engine: Engine, executors: Executors | None = None, *, dry_run: bool = False) -> Any:
    return table.run(VerifyRequest(engine=engine, dry_run=dry_run), executors=executors)


@pytest.mark.parametrize("times", [1, 2])
def test_executors_count_what_one_process_counts(table: Table, times: int) -> None:
    executors = PicklingExecutors(slots=1, times=times)
    version = table.base.state().version

    shared, alone = verified(table, Engine.SPARK, executors), verified(table, Engine.LOCAL)

    assert (executors.stages, executors.shares) == (["verify: prove that keys are distinct"], [3])
    assert (shared.outcome, shared.keys, shared.why()) == (JobOutcome.DONE, 50, "50 rows, every key once")
    assert (alone.outcome, alone.keys, alone.plan) == (shared.outcome, shared.keys, shared.plan)
    assert shared.to_dict()["where"] == {"engine": "spark", "reason": "it was asked for"}
    assert "where: in this process: it was asked for" in alone.view().notes
    assert table.base.state().version == version
    [first, second] = table.opened.ledger.runs(VERIFY.job)
    assert {run.facts[DUPLICATES_FACT] for run in (first, second)} == {0}


@pytest.mark.parametrize("executors", [None, PicklingExecutors()], ids=["alone", "shared"])
def test_repeated_keys_are_shown_and_freeze_the_table_wherever_they_are_counted(
    table: Table, executors: Executors | None
) -> None:
    lance.write_dataset(people(7, 7, 13), table.base.uri, mode="append")
    engine = Engine.LOCAL if executors is None else Engine.SPARK

    with pytest.raises(DuplicateKeysError, match="duplicate-keys") as found:
        verified(table, engine, executors)

    assert (found.value.facts["rows"], found.value.facts["keys"]) == (53, 50)
    assert found.value.facts["sample"] == [{"id": 7, "copies": 3}, {"id": 13, "copies": 2}]
    [freeze] = table.opened.freezes.active()
    assert (freeze.cause, freeze.by) == (FreezeCause.DUPLICATE_KEYS, "verify")
    [run] = table.opened.ledger.runs(VERIFY.job)
    assert run.facts[DUPLICATES_FACT] == 3
    table.base.dataset().delete("id IN (7, 13)")
    lance.write_dataset(people(7, 13), table.base.uri, mode="append")
    assert verified(table, engine, executors).keys == 50, "it shows on the frozen table that the cause is gone"


def test_large_tables_are_counted_on_executors_if_there_are_any(table: Table) -> None:
    small = Table.open(table.base.uri, settings=Settings(executors=ExecutorSettings(min_bytes=401)))

    assert str(verified(table, Engine.AUTO, PicklingExecutors()).place) == (
        "on executors: 400 B are at least executors.min_bytes, which is 400 B"
    )
    assert not verified(small, Engine.AUTO, PicklingExecutors()).place.on_executors
    assert not verified(table, Engine.AUTO).place.on_executors
    planned = verified(table, Engine.SPARK, dry_run=True)
    assert (planned.outcome, planned.why()) == (JobOutcome.PLANNED, "50 keys to count, about 400 B")
    with pytest.raises(InvalidRequestError, match="this process has none"):
        verified(table, Engine.SPARK)


def test_table_without_a_key_has_nothing_to_verify(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1, 1]}), uri)

    report: Any = Table.open(uri).run(VerifyRequest())

    assert (report.outcome, report.place) == (JobOutcome.NOTHING_TO_DO, None)


def test_key_column_may_have_the_name_of_the_count(tmp_path: Path) -> None:
    """The query that counted named its count like the column, and failed."""
    dataset = lance.write_dataset(pa.table({"copies": [1, 1, 2]}), str(tmp_path / "t"))

    counts = count_keys(dataset, ["copies"])

    assert (counts.rows, counts.keys, counts.repeated) == (3, 2, ({"copies": 1, "copies_": 2},))

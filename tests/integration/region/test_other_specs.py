"""A table is divided anew: no key waits in a region of the old spec and in one of the new at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from memwal_core.base_table import TableState
from memwal_core.errors import ConflictError, FencedError, UnavailableError
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region import RegionManifest
from memwal_core.region.spec import encode_region_value
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from memwal_core.writer.flush_region import flush_region
from memwal_core.writer.other_specs import OtherSpecs
from testkit.clock import ManualClock
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

IDS = tuple(range(20))
OLD, NEW = 1, 2
QUIET_S = 600.0
SETTINGS = Settings(
    storage=StorageSettings(fsync=False, retry_wait_s=0),
    # However slow the machine is, a writer learns of its fence before it looks at the table again.
    writer=WriterSettings(takeover_quiet_s=QUIET_S, background_flush=False, schema_check_interval_s=3600),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of four regions."""
    make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    return Table.open(str(tmp_path / "people.lance"), settings=SETTINGS)


def divided(table: Table) -> Table:
    """Divide a table anew, into eight regions."""
    table.configuration.divide(["bucket(id, 8)"])
    return Table.open(table.uri, settings=SETTINGS)


def names(table: Table) -> dict[int, str]:
    rows = table.to_arrow(consistency="durable")
    assert rows.num_rows == len(set(rows.column("id").to_pylist())), "a key is shown twice"
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def put(table: Table, spec: int, name: str, **arguments: object) -> None:
    with table.writer(spec_id=spec, **arguments) as writer:
        writer.put(people(*IDS, name=name))


def later(seconds: float = QUIET_S) -> ManualClock:
    """Return a clock of a time when a writer that is silent now counts as dead."""
    return ManualClock(datetime.now(UTC) + timedelta(seconds=seconds + 1))


def much_later(table: Table) -> Table:
    """Return the table as of that time."""
    return Table.open(table.uri, settings=SETTINGS, clock=later())


def manifests(table: Table) -> list[RegionManifest]:
    return table.opened.manifests.load_many(table.opened.manifests.region_ids())


def merged_writer(table: Table) -> TableWriter:
    """Return an open writer of the old spec, all of whose rows are merged."""
    writer = table.writer()
    writer.put(people(*IDS, name="old"))
    writer.flush()
    table.run(MergeRequest())
    return writer


def in_wal(table: Table) -> None:
    put(table, OLD, "old")


def flushed(table: Table) -> None:
    with table.writer(spec_id=OLD) as writer:
        writer.put(people(*IDS, name="old"))
        writer.flush()


@pytest.mark.req("SPEC-30", "SPEC-36")
@pytest.mark.parametrize("wait", [in_wal, flushed])
def test_writers_of_a_new_spec_wait_until_the_rows_of_the_old_one_are_merged(
    table: Table, wait: Callable[[Table], None]
) -> None:
    """Readers showed both rows of a key, and the older one stayed if its region was merged last."""
    wait(table)
    table = divided(table)

    with pytest.raises(ConflictError, match="spec") as refused:
        put(table, NEW, "new")
    assert "memwal checkpoint" in str(refused.value)
    assert names(table) == dict.fromkeys(IDS, "old")

    table.checkpoint()
    put(table, NEW, "new")
    assert names(table) == dict.fromkeys(IDS, "new")


def test_the_old_spec_waits_for_the_new_one_in_turn(table: Table) -> None:
    """A writer that was opened before the table was divided anew, and has claimed nothing, does not know the spec."""
    early = table.writer()
    later = divided(table)
    put(later, NEW, "new")

    with pytest.raises(ConflictError, match="spec"):
        early.put(people(*IDS, name="old"))
    early.close()
    later.checkpoint()

    assert names(later) == dict.fromkeys(IDS, "new")


def test_a_writer_of_the_old_spec_that_lives_is_left_alone_or_fenced(table: Table) -> None:
    living = merged_writer(table)
    table = divided(table)

    with pytest.raises(ConflictError, match="live writer"):
        put(table, NEW, "new")
    put(table, NEW, "new", takeover="fence")
    with pytest.raises(FencedError):
        living.put(people(*IDS, name="late"))

    assert names(table) == dict.fromkeys(IDS, "new")


def test_a_silent_writer_of_the_old_spec_is_fenced(table: Table) -> None:
    silent = merged_writer(table)
    table = divided(table)

    put(much_later(table), NEW, "new")
    with pytest.raises(FencedError):
        silent.put(people(*IDS, name="late"))

    assert names(table) == dict.fromkeys(IDS, "new")


def test_a_writer_that_was_fenced_before_writes_nothing_under_the_old_spec_when_it_wakes(table: Table) -> None:
    """It wrote the rows, found out that it was fenced, and acknowledged nothing; readers showed them all the same."""
    asleep = merged_writer(table)
    for region in asleep.stats():
        flush_region(table.base, region)
    table = divided(table)

    put(table, NEW, "new")
    with pytest.raises(FencedError):
        asleep.put(people(*IDS, name="late"))
    assert names(table) == dict.fromkeys(IDS, "new")

    epochs = {each.region_id: each.writer_epoch for each in manifests(table)}
    put(table, NEW, "newest")
    old = [each for each in manifests(table) if each.region_spec_id == OLD]
    assert {each.region_id: each.writer_epoch for each in old}.items() <= epochs.items(), "fenced again"
    regions = tuple(each.region_id for each in old)
    assert table.run(FlushRequest(regions=regions)).outcome is JobOutcome.NOTHING_TO_DO, "a fence has no rows"


@pytest.mark.parametrize("pack_below_bytes", [0, 1 << 20], ids=["linked", "packed"])
def test_a_region_that_was_fenced_in_its_wal_is_copied_read_and_written_again(
    table: Table, tmp_path: Path, pack_below_bytes: int
) -> None:
    writing = SETTINGS.writer.model_copy(update={"pack_below_bytes": pack_below_bytes})
    settings = SETTINGS.model_copy(update={"writer": writing})
    merged_writer(table)
    table = Table.open(divided(table).uri, settings=settings)
    put(table, NEW, "new", takeover="fence")
    table.checkpoint()
    assert table.doctor(contents=True).damage == ()

    table.run(CloneRequest(target=str(tmp_path / "copy.lance")))
    for each in (table, Table.open(str(tmp_path / "copy.lance"), settings=settings)):
        put(each, OLD, "newer")
        with each.writer(spec_id=OLD, takeover="fence") as writer:
            writer.put(people(0, name="newest"))
            writer.flush()
        each.run(MergeRequest())
        assert names(each) == {**dict.fromkeys(IDS, "newer"), 0: "newest"}
        assert each.doctor(contents=True).damage == ()


def test_rows_of_pylance_that_wait_under_the_old_spec_are_waited_for(table: Table) -> None:
    native, (spec,) = native_region_id(1), table.base.state().require_details().region_specs
    value = encode_region_value(spec, (0,))
    table.opened.manifests.create(native, region_spec_id=OLD, region_field_values=value)
    write_native_generations(table.uri, native, [[Put(people(*IDS, name="old"))]])
    table = divided(table)

    with pytest.raises(ConflictError, match="spec"):
        put(much_later(table), NEW, "new")
    table.checkpoint(fence=True)
    put(much_later(table), NEW, "new")

    assert names(table) == dict.fromkeys(IDS, "new")


def test_of_two_writers_that_claim_at_once_at_most_one_writes(table: Table) -> None:
    """Each looks after it has claimed; one that is refused gives back, so that the other one can go on."""
    table = divided(table)
    first, second = table.writer(spec_id=OLD), table.writer(spec_id=NEW)
    look, looks = OtherSpecs.require_rest, []

    def claimed_meanwhile(others: OtherSpecs, state: TableState, spec_id: int) -> None:
        looks.append(spec_id)
        if len(looks) == 1:
            with pytest.raises(ConflictError):
                second.put(people(*IDS, name="new"))
        look(others, state, spec_id)

    with patch.object(OtherSpecs, "require_rest", claimed_meanwhile):
        first.put(people(*IDS, name="old"))
    assert looks == [OLD, NEW]
    first.close()
    second.close()

    assert names(table) == dict.fromkeys(IDS, "old")


def test_claims_that_were_not_looked_at_are_before_the_next_put(table: Table) -> None:
    in_wal(table)
    table = divided(table)
    down = UnavailableError("no answer", remedy="try again")
    writer = table.writer(spec_id=NEW)

    with patch.object(OtherSpecs, "require_rest", side_effect=down), pytest.raises(UnavailableError):
        writer.put(people(*IDS, name="new"))
    with pytest.raises(ConflictError, match="spec"):
        writer.put(people(*IDS, name="new"))
    writer.close()

    assert names(table) == dict.fromkeys(IDS, "old")


def test_batch_of_another_spec_is_refused_and_written_after_the_merge(table: Table, tmp_path: Path) -> None:
    in_wal(table)
    table = divided(table)
    source = tmp_path / "rows.parquet"
    pq.write_table(people(*IDS, name="new"), source)
    request = IngestRequest(sources=(str(source),), spec=NEW)

    with pytest.raises(ConflictError, match="spec"):
        table.run(request)
    table.checkpoint()
    table.run(request)

    assert names(table) == dict.fromkeys(IDS, "new")

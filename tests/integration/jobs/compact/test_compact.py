"""Compaction on real indexed tables: rows, progress, catch-up and index answers stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.lance import _Session

from memwal_core.base_table import BaseTable, TableState, list_versions, vector_model_digest
from memwal_core.clock import SystemClock
from memwal_core.errors import CorruptionError, FencedError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint
from memwal_core.jobs.catchup.run import catch_up
from memwal_core.jobs.compact.cleanup import Kept, clean_up
from memwal_core.jobs.compact.plan import CompactVerdict
from memwal_core.jobs.compact.report import CompactReport
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.compact.run import COMPACT_CHECKED, COMPACT_OPTIMISED, COMPACT_REWRITTEN, compact
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.native.casting import cast
from memwal_core.settings import CompactSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import delete_natively, merge_natively
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people, with_clock

A, B = native_region_id(1), native_region_id(2)
PLACES = (COMPACT_OPTIMISED, COMPACT_REWRITTEN, COMPACT_CHECKED)
NAMES = ("id_idx", "title_idx", "topic_idx", "vec_idx")
SETTINGS = CompactSettings(min_fragments=4, target_rows=100_000)


def parts_of(table: BaseTable, settings: CompactSettings = SETTINGS, **more) -> JobContext:
    return JobContext(OpenTable.of(with_clock(table.with_settings(Settings(compact=settings)), ManualClock())), **more)


def run(
    table: BaseTable, settings: CompactSettings = SETTINGS, *, failpoints=NO_FAILPOINTS, **options
) -> CompactReport:
    return compact(parts_of(table, settings, failpoints=failpoints), **options)


def merge(table: BaseTable, generation: int) -> None:
    """Replace 20 old rows and add 30 new ones."""
    merge_natively(table, articles(1950 + 30 * generation, 50, name=f"gen{generation}"), {A: generation})


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_articles_table(str(tmp_path / "t"), maintained=["title_idx", "vec_idx"])
    for generation in range(1, 7):
        merge(made, generation)
    return made


def rows(table: BaseTable) -> pa.Table:
    return table.dataset().to_table().sort_by("id")


def fragments(table: BaseTable) -> int:
    return len(table.dataset().get_fragments())


def caught_up(table: BaseTable) -> dict[str, dict]:
    return {name: dict(entry) for name, entry in table.state().require_details().index_catchup.items()}


def answers(table: BaseTable, *, use_index: bool) -> list[list[int]]:
    """Return what filters and searches find, with and without the indexes."""
    dataset = table.dataset()
    found = [
        dataset.to_table(filter="id >= 1990 AND id < 2100", use_scalar_index=use_index),
        dataset.to_table(filter="topic = 'topic3'", use_scalar_index=use_index),
    ]
    if use_index:
        found.append(dataset.to_table(full_text_query="gen4", fast_search=True))
    else:
        found.append(dataset.to_table(filter="title LIKE 'gen4 %'", use_scalar_index=False))
    return [sorted(each.column("id").to_pylist()) for each in found]


def test_upserts_of_new_keys_do_not_keep_a_table_with_stable_row_ids_from_being_compacted(tmp_path: Path) -> None:
    """Lance counted the fragments that they made as covered by the MemWAL index, and refused every compaction."""
    uri = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    values = pa.table({"id": range(20), "name": ["old"] * 20}, schema=schema)
    lance.write_dataset(values, uri, enable_stable_row_ids=True)
    table = Table.open(uri)
    table.enable(key="id")
    for number in range(3):
        upsert = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(pa.table({"id": [100 + number], "name": [f"new{number}"]}, schema=table.base.state().schema))
    entry = table.base.state().entry
    assert entry is not None
    assert entry.covers_fragments

    report = table.run(CompactRequest(force=True))

    entry = table.base.state().entry
    assert (report.outcome, fragments(table.base)) == (JobOutcome.DONE, 1)
    assert entry is not None
    assert not entry.covers_fragments
    found = rows(table.base).column("name").to_pylist()
    assert found == [*["old"] * 20, "new0", "new1", "new2"]
    assert table.run(CompactRequest(force=True)).outcome is JobOutcome.NOTHING_TO_DO


def test_fragments_that_lance_would_leave_alone_are_not_due(tmp_path: Path) -> None:
    """Full ones that had lost a row each: due in every cycle, for which all segments of each index were merged."""
    table = make_people_table(str(tmp_path / "t"), rows=people(*range(100)))
    for number in range(1, 5):
        lance.write_dataset(people(*range(100 * number, 100 * number + 100)), table.uri, mode="append")
    lance.dataset(table.uri).delete("id % 100 = 7")

    report = run(table, SETTINGS.model_copy(update={"target_rows": 100}), force=True)

    assert (report.outcome, report.plan.verdict) == (JobOutcome.NOTHING_TO_DO, CompactVerdict.NONE)
    assert report.catchup_before is None
    assert fragments(table) == 5
    assert run(table, SETTINGS.model_copy(update={"target_rows": 101})).outcome is JobOutcome.DONE


@pytest.mark.req("CAT-01", "CAT-11")
def test_small_fragments_become_one_and_nothing_else_changes(table: BaseTable) -> None:
    before, digest = rows(table), vector_model_digest(table, table.state().version, "vec_idx")
    assert fragments(table) == 7

    report = run(table, SETTINGS.model_copy(update={"deletion_threshold": 0.9}))

    assert (report.outcome, report.plan.verdict) == (JobOutcome.DONE, CompactVerdict.MANY_SMALL)
    assert (report.fragments_before, report.fragments_after, fragments(table)) == (7, 1, 1)
    assert rows(table).equals(before)
    assert table.state().require_details().merged_generations == {A: 6}
    assert caught_up(table) == {name: {A: 6} for name in NAMES}
    assert answers(table, use_index=True) == answers(table, use_index=False)
    assert vector_model_digest(table, table.state().version, "vec_idx") == digest
    again = run(table)
    assert (again.outcome, again.outcome.exit_code) == (JobOutcome.NOTHING_TO_DO, 3)


def test_dry_run_shows_the_plan_and_changes_nothing(table: BaseTable) -> None:
    version = table.state().version
    report = run(table, dry_run=True, remove_versions=True)
    assert (report.outcome, len(report.plan.take)) == (JobOutcome.PLANNED, 7)
    assert report.cleanup is not None
    assert table.state().version == version


def test_fragments_whose_dictionaries_do_not_fit_one_file_stay(tmp_path: Path) -> None:
    """Lance 14.0.2 rewrote them without an error, and nobody could read the table any more."""
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("category", kind)])
    table = Table.create(str(tmp_path / "categories"), schema, key="id").base
    for first in (0, 100):
        texts = pa.array([f"category {first + number}" for number in range(100)])
        ids = pa.array(range(first, first + 100))
        made = pa.Table.from_arrays([ids, cast(texts, kind)], schema=table.state().schema)
        lance.write_dataset(made, table.uri, mode="append")

    report = run(table, force=True)

    assert (report.outcome, report.plan.verdict) == (JobOutcome.NOTHING_TO_DO, CompactVerdict.UNREADABLE)
    assert "nobody can read" in report.why()
    assert len(set(table.dataset().to_table().column("category").to_pylist())) == 200


def test_few_fragments_stay_unless_forced(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=100, kinds=("BTREE",))
    merge(table, 1)
    assert run(table).plan.verdict is CompactVerdict.TOO_FEW
    assert run(table).outcome is JobOutcome.NOTHING_TO_DO
    assert run(table, force=True).outcome is JobOutcome.DONE
    assert fragments(table) == 1


def test_deleted_rows_leave_the_files_and_the_indexes(table: BaseTable) -> None:
    keys = articles(0, 1500).select(["id"])
    delete_natively(table, keys, read_version=table.state().version, marks={B: 1})
    report = run(table)
    assert report.plan.verdict is CompactVerdict.DELETIONS
    assert table.dataset().count_rows() == 2180 - 1500
    assert sum(each.num_deletions for each in table.dataset().get_fragments()) == 0
    assert answers(table, use_index=True) == answers(table, use_index=False)
    assert caught_up(table)["id_idx"] == {A: 6, B: 1}


def test_passes_are_bounded_and_go_on_until_nothing_is_left(table: BaseTable) -> None:
    settings = SETTINGS.model_copy(update={"max_source_fragments": 3, "min_fragments": 2})
    report = run(table, settings)
    assert len(report.rewrites) == 3
    assert (report.outcome, fragments(table)) == (JobOutcome.DONE, 1)
    assert caught_up(table) == {name: {A: 6} for name in NAMES}


@pytest.mark.req("CAT-05", "IDX-28")
@pytest.mark.parametrize("place", PLACES)
def test_merge_between_any_two_steps_keeps_its_rows_and_progress(table: BaseTable, place: Failpoint) -> None:
    def merge_seventh() -> None:
        merge(table, 7)

    run(table, failpoints=ArmedFailpoints().arm(place, merge_seventh))

    assert table.state().require_details().merged_generations == {A: 7}
    assert table.dataset().count_rows() == 2000 + 7 * 30
    assert answers(table, use_index=False)[2] == sorted(
        rows(table).filter(pa.compute.match_substring(rows(table).column("title"), "gen4 ")).column("id").to_pylist()
    )
    for entry in caught_up(table).values():
        assert entry[A] <= 7
    catch_up(parts_of(table))
    assert caught_up(table) == {name: {A: 7} for name in NAMES}
    assert answers(table, use_index=True) == answers(table, use_index=False)


class MergedInBetween(BaseTable):
    """A base table on which a merge commits right after a version was opened to be rewritten."""

    merge: Callable[[], object] | None = None
    due = False

    def dataset(self, version: int | None = None, session: _Session | None = None):  # type: ignore[no-untyped-def]
        found = super().dataset(version, session)
        if self.due and self.merge is not None and version is not None:
            self.due = False
            self.merge()
        return found


def test_rewrite_that_conflicts_with_a_merge_is_planned_anew(table: BaseTable) -> None:
    context = parts_of(MergedInBetween.open(table.uri))
    rival = context.base
    rival.merge = lambda: merge(table, 7)

    def arm() -> None:
        rival.due = True

    report = compact(replace(context, failpoints=ArmedFailpoints().arm(COMPACT_OPTIMISED, arm)))

    assert (report.outcome, report.rewrites[0].attempts) == (JobOutcome.DONE, 2)
    assert table.state().require_details().merged_generations == {A: 7}
    assert table.dataset().count_rows() == 2000 + 7 * 30
    assert rows(table).column("id").to_pylist() == list(range(2210))


@pytest.mark.req("CAT-13")
@pytest.mark.parametrize("place", PLACES)
def test_crash_leaves_catch_up_withdrawn_at_worst_and_the_next_run_records_it(
    table: BaseTable, place: Failpoint
) -> None:
    before = rows(table)
    with pytest.raises(SimulatedCrash):
        run(table, failpoints=ArmedFailpoints().arm(place))
    assert rows(table).equals(before)
    if place != COMPACT_OPTIMISED:
        assert caught_up(table) == {}, "garbage collection must see that nothing is proven"
    catch_up(parts_of(table))
    assert caught_up(table) == {name: {A: 6} for name in NAMES}
    assert answers(table, use_index=True) == answers(table, use_index=False)


def test_deferred_index_remap_is_never_used_even_if_the_table_asks_for_it(table: BaseTable) -> None:
    table.dataset().update_config({"lance.compaction.defer_index_remap": "true"})
    run(table)
    assert fragments(table) == 1
    names = {index.name for index in table.indexes()}
    assert names == {"__lance_mem_wal", *NAMES}


class ForgetfulTable(BaseTable):
    """A base table whose rewrites lose a row, as Lance once did."""

    lossy_from: int | None = None

    def state(self, version: int | None = None) -> TableState:
        found = super().state(version)
        if self.lossy_from is not None and found.version > self.lossy_from:
            return replace(found, num_rows=found.num_rows - 1)
        return found


def test_rewrite_that_loses_a_row_stops_the_run_loudly(table: BaseTable) -> None:
    context = parts_of(ForgetfulTable.open(table.uri))
    forgetful = context.base

    def begin_to_forget() -> None:
        # Rewriting takes two commits: one reserves fragment ids, the other brings the fragments.
        forgetful.lossy_from = table.state().version - 1

    with pytest.raises(CorruptionError) as raised:
        compact(replace(context, failpoints=ArmedFailpoints().arm(COMPACT_REWRITTEN, begin_to_forget)))
    assert raised.value.facts["rows_after"] == raised.value.facts["rows_before"] - 1


def test_rewrite_does_not_begin_when_an_index_cannot_catch_up(table: BaseTable) -> None:
    (broken,) = [
        segment.uuid
        for index in table.dataset().describe_indices()
        if index.name == "title_idx"
        for segment in index.segments
    ]
    table.store.delete_directory(f"_indices/{broken}")
    report = run(table, remove_versions=True)
    assert report.outcome in {JobOutcome.BLOCKED, JobOutcome.CONFLICT}
    assert report.reason.startswith("indexes stayed behind: title_idx: ")
    assert report.why().endswith("so old versions were not removed")
    assert (report.rewrites, fragments(table)) == ((), 7)


def test_run_whose_lease_was_lost_rewrites_nothing(table: BaseTable) -> None:
    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    version = table.state().version
    with pytest.raises(FencedError):
        compact(parts_of(table, guard=lost))
    assert table.state().version == version


@pytest.mark.req("GC-19")
def test_cleanup_removes_old_versions_and_keeps_tagged_young_and_new_ones(table: BaseTable) -> None:
    versions = [each.version for each in list_versions(table)]
    table.dataset().tags.create("audit", versions[1])
    tagged = table.dataset(versions[1]).count_rows()
    clock = ManualClock(SystemClock().now())
    settings = CompactSettings(keep_versions=2, retention_s=3600)
    assert clean_up(table, settings, clock.now(), needed=()).outcome is JobOutcome.NOTHING_TO_DO
    clock.advance(timedelta(hours=2).total_seconds())
    planned = clean_up(table, settings, clock.now(), needed={versions[3]}, dry_run=True)
    assert (planned.outcome, planned.result.versions) == (JobOutcome.PLANNED, len(versions) - 4)
    assert len(list_versions(table)) == len(versions)

    done = clean_up(table, settings, clock.now(), needed={versions[3]})

    assert (done.outcome, done.result.versions) == (JobOutcome.DONE, len(versions) - 4)
    left = {each.version: each.tags for each in list_versions(table)}
    assert left == {versions[1]: ("audit",), versions[3]: (), versions[-2]: (), versions[-1]: ()}
    assert done.plan.keep[versions[3]] is Kept.NEEDED
    assert table.dataset(versions[1]).count_rows() == tagged
    assert table.dataset().count_rows() == 2180
    assert table.state().require_details().merged_generations == {A: 6}


def test_version_from_which_a_branch_begins_is_not_removed_again_and_again(table: BaseTable) -> None:
    clock = ManualClock(SystemClock().now())
    clock.advance(timedelta(hours=2).total_seconds())
    settings = CompactSettings(keep_versions=1, retention_s=3600)
    first = list_versions(table)[1].version
    branch = table.dataset(first).create_branch("experiment")
    branch.create_branch("inner")
    assert clean_up(table, settings, clock.now(), needed=()).outcome is JobOutcome.DONE

    again = clean_up(table, settings, clock.now(), needed=())

    assert (again.outcome, again.plan.keep[first]) == (JobOutcome.NOTHING_TO_DO, Kept.BRANCHED)
    left = [(each.version, each.branches) for each in list_versions(table)]
    assert left == [(first, ("experiment",)), (table.state().version, ())]


def test_files_of_a_version_that_was_tagged_go_with_it_once_the_tag_is_gone(table: BaseTable) -> None:
    """Bug class 30: removing the versions around a tagged one must not strand the files it shared with them."""
    clock = ManualClock(SystemClock().now())
    clock.advance(timedelta(hours=2).total_seconds())
    settings = CompactSettings(keep_versions=1, retention_s=3600)
    tagged = list_versions(table)[1].version
    table.dataset().tags.create("audit", tagged)
    clean_up(table, settings, clock.now(), needed=())
    assert [each.version for each in list_versions(table)] == [tagged, table.state().version]

    table.dataset().tags.delete("audit")
    clean_up(table, settings, clock.now(), needed=())

    stored = {path.name for path in Path(table.uri, "data").iterdir()}
    needed = {file.path for each in table.dataset().get_fragments() for file in each.data_files()}
    assert stored == needed


def test_version_that_is_tagged_after_the_plan_stays(table: BaseTable) -> None:
    clock = ManualClock(SystemClock().now())
    clock.advance(timedelta(hours=2).total_seconds())
    first = list_versions(table)[0].version

    def tag() -> None:
        table.dataset().tags.create("late", first)

    clean_up(table, CompactSettings(keep_versions=1, retention_s=3600), clock.now(), needed=(), check_lease=tag)
    assert [each.version for each in list_versions(table)] == [first, table.state().version]


def test_admin_compacts_and_removes_versions_under_a_lease(table: BaseTable) -> None:
    clock = ManualClock(SystemClock().now())
    clock.advance(timedelta(days=30).total_seconds())
    settings = Settings(compact=SETTINGS.model_copy(update={"keep_versions": 1}))
    admin = Table.open(table.uri, settings=settings, clock=clock)
    assert admin.run(CompactRequest(dry_run=True)).outcome is JobOutcome.PLANNED
    report = admin.run(CompactRequest(remove_versions=True), holder="run")
    assert report.outcome is JobOutcome.DONE
    assert report.cleanup is not None
    assert report.cleanup.result.data_files > 0
    assert f"; removed {report.cleanup.result.versions} versions and " in report.why()
    assert [each.version for each in list_versions(table)] == [table.state().version]
    assert answers(table, use_index=True) == answers(table, use_index=False)
    again = admin.run(CompactRequest(remove_versions=True))
    assert again.outcome is JobOutcome.NOTHING_TO_DO
    assert again.why().endswith("removed 0 versions and 0 B; kept 1 among the newest")

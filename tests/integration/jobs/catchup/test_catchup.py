"""Index catch-up on real tables with indexes of every kind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.lance import _Session

from memwal_core.base_table import BaseTable, read_coverage, vector_model_digest
from memwal_core.errors import FencedError, InvalidRequestError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint
from memwal_core.format.memwal_index.rules import caught_up_generation
from memwal_core.format.paths import INDEX_DIRECTORY
from memwal_core.jobs.catchup import extend as extending
from memwal_core.jobs.catchup.extend import CATCHUP_EXTENDED, CATCHUP_SURVEYED
from memwal_core.jobs.catchup.plan import CatchupVerdict
from memwal_core.jobs.catchup.report import CatchupReport, IndexResult
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.catchup.run import CATCHUP_RECORDED, catch_up
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CatchupSettings, Settings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.faults.rival_mergers import WAYS, Way, prepared_by
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import delete_natively, merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA, reopened, with_clock

A, B = native_region_id(1), native_region_id(2)
PLACES = (
    (CATCHUP_SURVEYED, 1),
    (CATCHUP_SURVEYED, 2),
    (CATCHUP_EXTENDED, 1),
    (CATCHUP_EXTENDED, 2),
    (CATCHUP_RECORDED, 1),
)
NAMES = ("id_idx", "title_idx", "topic_idx", "vec_idx")
WORDS = ("word_idx", "topic_idx", "tags_idx")


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_articles_table(str(tmp_path / "t"), maintained=["title_idx", "vec_idx"])


def parts_of(table: BaseTable, settings: CatchupSettings | None = None, **more) -> JobContext:
    chosen = table.with_settings(Settings(catchup=settings or CatchupSettings()))
    return JobContext(OpenTable.of(with_clock(chosen, ManualClock())), **more)


def run(
    table: BaseTable, *, settings: CatchupSettings | None = None, failpoints=NO_FAILPOINTS, **options
) -> CatchupReport:
    return catch_up(parts_of(table, settings, failpoints=failpoints), **options)


def recorded(table: BaseTable) -> dict[str, dict]:
    return {name: dict(entry) for name, entry in table.state().require_details().index_catchup.items()}


def segments(table: BaseTable, name: str) -> list[str]:
    found = table.dataset().describe_indices()
    return [segment.uuid for index in found if index.name == name for segment in index.segments]


@pytest.mark.req("CAT-01", "CAT-03", "CAT-04", "CAT-06", "CAT-10")
def test_every_index_covers_and_records_all_merged_rows(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50, name="fresh"), {A: 1, B: 4})
    merge_natively(table, articles(1990, 30, name="fresh"), {A: 2})

    report = run(table)

    assert (report.outcome, report.outcome.exit_code) == (JobOutcome.DONE, 0)
    assert [(each.name, each.verdict, each.result) for each in report.indexes] == [
        (name, CatchupVerdict.BEHIND, IndexResult.EXTENDED) for name in NAMES
    ]
    assert recorded(table) == {name: {A: 2, B: 4} for name in NAMES}
    assert all(not index.unindexed_fragments for index in read_coverage(table, table.state().version).indexes)
    fast = table.dataset().to_table(full_text_query="fresh", fast_search=True)
    assert sorted(fast.column("id").to_pylist()) == list(range(1990, 2050))


@pytest.mark.req("CAT-01")
def test_generations_of_pylance_and_of_our_writer_are_caught_up_with_after_a_merge(table: BaseTable) -> None:
    write_native_generations(table.uri, A, [[Put(articles(3000, 20))], [Put(articles(3010, 20))]])
    with TableWriter.open(table) as writer:
        writer.put(articles(0, 40, name="ours"))
        writer.flush()
    admin = Table.open(table.uri)
    admin.run(MergeRequest())

    report = admin.run(CatchupRequest())

    details = table.state().require_details()
    assert report.outcome is JobOutcome.DONE
    assert len(details.merged_generations) == 5
    for region_id, merged in details.merged_generations.items():
        assert caught_up_generation(details, NAMES, region_id) == merged > 0


TAGGED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("word", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def tagged(ids: range, word: str) -> pa.Table:
    rows = len(ids)
    return pa.table({"id": ids, "word": [word] * rows, "topic": [word] * rows, "tags": [[word]] * rows}, schema=TAGGED)


@pytest.mark.parametrize("way", WAYS)
def test_indexes_forget_values_of_rows_that_kept_their_ids_when_they_changed(tmp_path: Path, way: Way) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(tagged(range(100), "first"), uri, max_rows_per_file=40, enable_stable_row_ids=True)
    for column, kind in (("word", "INVERTED"), ("topic", "BITMAP"), ("tags", "LABEL_LIST")):
        dataset.create_scalar_index(column, kind)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([])
    admin = Table.open(uri, settings=Settings(merge=prepared_by(way)))

    def counts(word: str) -> list[int]:
        opened = lance.dataset(uri)
        filters = (f"topic = '{word}'", f"array_has(tags, '{word}')")
        return [opened.to_table(full_text_query=word).num_rows, *(opened.count_rows(each) for each in filters)]

    write_native_generations(uri, A, [[Put(tagged(range(200, 210), "added"))]])
    admin.run(MergeRequest())
    admin.run(CatchupRequest())
    assert {len(index.segments) for index in lance.dataset(uri).describe_indices() if index.name in WORDS} == {2}
    write_native_generations(uri, A, [[Put(tagged(range(5), "second"))]])
    admin.run(MergeRequest())
    admin.run(CatchupRequest())
    lance.dataset(uri).update({"word": "'third'", "topic": "'third'", "tags": "['third']"}, where="id IN (5, 6, 200)")

    admin.run(CatchupRequest())

    assert not any(each.unindexed_fragments for each in read_coverage(table, table.state().version).indexes)
    assert {word: counts(word) for word in ("first", "added", "second", "third")} == {
        "first": [93] * 3,
        "added": [9] * 3,
        "second": [5] * 3,
        "third": [3] * 3,
    }


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("in", pa.struct([("n", pa.int64()), ("t", pa.string()), ("vec", pa.list_(pa.float32(), 8))])),
    ]
)


def nested(ids: range) -> pa.Table:
    values = [{"n": number, "t": f"word{number}", "vec": [float(number)] * 8} for number in ids]
    return pa.table({"id": ids, "in": values}, schema=NESTED)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("n", "BTREE"), ("n", "BITMAP"), ("n", "ZONEMAP"), ("n", "BLOOMFILTER"), ("t", "NGRAM"), ("t", "INVERTED"),
        ("vec", "IVF_FLAT"),
    ],
)  # fmt: skip
def test_indexes_over_fields_inside_of_a_column_catch_up_again_and_again(tmp_path: Path, field: str, kind: str) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(nested(range(100)), uri)
    if kind == "IVF_FLAT":
        dataset.create_index("in.vec", kind, name="idx", num_partitions=1)
    else:
        dataset.create_scalar_index(f"in.{field}", kind, name="idx")
    table = BaseTable.open(uri)
    table.create_mem_wal_index([])

    for generation, first in enumerate((100, 110), start=1):
        merge_natively(table, nested(range(first, first + 10)), {A: generation})
        report = run(table)
        assert (report.outcome, recorded(table)) == (JobOutcome.DONE, {"idx": {A: generation}})

    assert [lance.dataset(uri).count_rows(f"`in`.n = {number}") for number in (5, 105, 115, 125)] == [1, 1, 1, 0]
    assert not any(each.unindexed_fragments for each in read_coverage(table, table.state().version).indexes)


@pytest.mark.req("CAT-14")
def test_second_run_changes_nothing(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    run(table)
    version = table.state().version
    report = run(table)
    assert (report.outcome, report.outcome.exit_code) == (JobOutcome.NOTHING_TO_DO, 3)
    assert {each.verdict for each in report.indexes} == {CatchupVerdict.CAUGHT_UP}
    assert table.state().version == version


def test_dry_run_shows_the_plan_and_changes_nothing(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    version = table.state().version
    report = run(table, dry_run=True)
    assert report.outcome is JobOutcome.PLANNED
    assert {each.unindexed_rows for each in report.plan.indexes} == {50}
    assert table.state().version == version


@pytest.mark.req("CAT-02", "CAT-09")
def test_selected_index_catches_up_and_the_others_stay_behind(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    report = run(table, indexes={"title_idx"})
    assert recorded(table) == {"title_idx": {A: 1}}
    behind = {each.name: each.regions_behind for each in report.indexes}
    assert behind == {"id_idx": 1, "title_idx": 0, "topic_idx": 1, "vec_idx": 1}


@pytest.mark.req("CAT-05", "CAT-08")
def test_generation_that_is_merged_while_an_index_is_built_is_not_recorded(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})

    def merge() -> None:
        merge_natively(table, articles(2050, 50), {A: 2})

    run(table, indexes={"title_idx"}, failpoints=ArmedFailpoints().arm(CATCHUP_SURVEYED, merge))

    assert table.state().require_details().merged_generation(A) == 2
    assert recorded(table) == {"title_idx": {A: 1}}
    coverage = read_coverage(table, table.state().version).named("title_idx")
    assert coverage is not None
    assert coverage.unindexed_rows == 50
    run(table, indexes={"title_idx"})
    assert recorded(table)["title_idx"] == {A: 2}


@pytest.mark.req("CAT-07")
@pytest.mark.parametrize("committed", [False, True], ids=["before its commit", "after it"])
def test_version_that_others_remove_while_it_is_read_is_no_damage_of_an_index(
    table: BaseTable, committed: bool
) -> None:
    """A run that had stalled told people to look at the index."""
    merge_natively(table, articles(2000, 50), {A: 1})

    def merge_and_clean_up(*_: object) -> None:
        merge_natively(table, articles(2050, 50), {A: 2})
        lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0))

    faulty = FaultyStore(table.store)
    failpoints = ArmedFailpoints()
    if committed:
        manifests = frozenset({"put_if_absent"}), lambda path: path.startswith("_versions/")
        faulty.add(Rule(merge_and_clean_up, Moment.AFTER, *manifests))
    else:
        failpoints.arm(CATCHUP_SURVEYED, merge_and_clean_up)

    report = run(reopened(table, faulty), indexes={"title_idx"}, failpoints=failpoints)

    assert report.outcome is JobOutcome.DONE
    assert recorded(table) == {"title_idx": {A: 2}}


class Interrupted(BaseTable):
    """A base table on which a rival acts right after a version was opened."""

    after_opening: Callable[[], object] | None = None

    def dataset(self, version: int | None = None, session: _Session | None = None) -> lance.LanceDataset:
        found = super().dataset(version, session)
        action, self.after_opening = self.after_opening, None
        if action is not None:
            action()
        return found


@pytest.mark.req("CAT-07", "CAT-14")
def test_rival_that_extends_the_same_index_first_is_noticed_and_nothing_is_done_twice(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    late = Interrupted.open(table.uri)

    def let_rival_extend() -> None:
        late.after_opening = lambda: run(table, indexes={"title_idx"})

    report = run(late, indexes={"title_idx"}, failpoints=ArmedFailpoints().arm(CATCHUP_SURVEYED, let_rival_extend))

    assert report.outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
    assert recorded(table) == {"title_idx": {A: 1}}
    fast = table.dataset().to_table(full_text_query="old", fast_search=True)
    assert fast.num_rows == 2050
    assert len(segments(table, "title_idx")) == 2


@pytest.mark.req("CAT-09")
def test_two_builders_of_different_indexes_do_not_disturb_each_other(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    other = ArmedFailpoints().arm(CATCHUP_SURVEYED, lambda: run(table, indexes={"id_idx"}))
    run(table, indexes={"title_idx"}, failpoints=other)
    assert recorded(table) == {"id_idx": {A: 1}, "title_idx": {A: 1}}


@pytest.mark.req("CAT-09")
def test_record_of_one_index_leaves_the_entries_of_those_that_are_behind(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    run(table)
    merge_natively(table, articles(2050, 50), {A: 2})
    run(table, indexes={"title_idx"})
    merge_natively(table, articles(0, 0), {A: 3})

    report = run(table, indexes={"title_idx"})

    assert {each.name: each.result for each in report.indexes}["title_idx"] is IndexResult.RECORDED
    assert recorded(table) == {**{name: {A: 1} for name in NAMES}, "title_idx": {A: 3}}


@pytest.mark.req("CAT-06", "CAT-13")
def test_covering_index_without_an_entry_is_recorded_without_being_touched(table: BaseTable) -> None:
    merge_natively(table, articles(0, 0), {A: 3})
    assert recorded(table) == {}
    before = {name: segments(table, name) for name in NAMES}

    report = run(table)

    assert {each.result for each in report.indexes} == {IndexResult.RECORDED}
    assert recorded(table) == {name: {A: 3} for name in NAMES}
    assert {name: segments(table, name) for name in NAMES} == before
    assert report.version_after == report.version_before + 1


@pytest.mark.req("CAT-07")
def test_record_that_loses_its_version_to_a_merge_is_derived_anew(table: BaseTable) -> None:
    merge_natively(table, articles(0, 0), {A: 3})
    faulty = FaultyStore(table.store)

    def merge(_call: object) -> None:
        merge_natively(BaseTable.open(table.uri), articles(2000, 50), {A: 4})

    faulty.add(Rule(merge, Moment.BEFORE, frozenset({"put_if_absent"}), lambda path: path.startswith("_versions/")))
    report = run(reopened(table, faulty, Settings()), indexes={"id_idx"})

    # The merge's rows are not indexed, so 4 must not be recorded. Lance itself has credited 3.
    assert table.state().require_details().merged_generation(A) == 4
    assert recorded(table)["id_idx"] == {A: 3}
    assert {each.name: each.regions_behind for each in report.indexes}["id_idx"] == 1


@pytest.mark.req("CAT-13")
@pytest.mark.parametrize(("place", "nth"), PLACES)
def test_crash_at_any_place_is_completed_by_the_next_run(table: BaseTable, place: Failpoint, nth: int) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    if place == CATCHUP_RECORDED:
        run(table)
        merge_natively(table, articles(0, 0), {A: 2})
    with pytest.raises(SimulatedCrash):
        run(table, failpoints=ArmedFailpoints().arm(place, nth=nth))
    details = table.state().require_details()
    for entry in details.index_catchup.values():
        assert entry[A] <= details.merged_generation(A)
    run(table)
    merged = table.state().require_details().merged_generation(A)
    assert recorded(table) == {name: {A: merged} for name in NAMES}


@pytest.mark.req("CAT-11", "IDX-39")
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_FLAT", "IVF_SQ", "IVF_HNSW_SQ"])
def test_vector_index_keeps_centroids_and_quantizer_when_a_partition_overflows(tmp_path: Path, kind: str) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=(kind,))
    digest = vector_model_digest(table, table.state().version, "vec_idx")
    for generation, expected_segments in ((1, 2), (2, 1)):
        merge_natively(table, articles(10_000 * generation, 3000, centre=0.9), {A: generation})
        assert run(table, settings=CatchupSettings(max_segments=2)).outcome is JobOutcome.DONE
        assert vector_model_digest(table, table.state().version, "vec_idx") == digest
        assert len(segments(table, "vec_idx")) == expected_segments
    assert recorded(table)["vec_idx"] == {A: 2}


@pytest.mark.req("CAT-11", "IDX-39")
def test_lance_left_to_itself_would_change_the_centroids(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("IVF_PQ",))
    digest = vector_model_digest(table, table.state().version, "vec_idx")
    merge_natively(table, articles(10_000, 40_000, centre=0.9), {A: 1})
    read = table.state().version
    table.dataset().optimize.optimize_indices(index_names=["vec_idx"])
    assert vector_model_digest(table, table.state().version, "vec_idx") != digest

    table.dataset(read).restore()
    run(table)
    assert recorded(table)["vec_idx"] == {A: 1}
    assert vector_model_digest(table, table.state().version, "vec_idx") == digest


@pytest.mark.req("CAT-11", "IDX-39")
def test_extension_that_changes_the_centroids_is_refused_and_not_credited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("IVF_FLAT",))
    merge_natively(table, articles(10_000, 3000, centre=0.9), {A: 1})

    def train_again(table: BaseTable, name: str, **_: object) -> int:
        table.dataset().create_index("vec", "IVF_FLAT", name=name, num_partitions=2, replace=True)
        return table.state().version

    monkeypatch.setattr(extending, "extend_index", train_again)

    report = run(table)

    assert report.outcome is JobOutcome.BLOCKED
    assert [(each.name, each.result) for each in report.indexes] == [("vec_idx", IndexResult.FAILED)]
    assert "centroids" in report.indexes[0].reason


@pytest.mark.req("CAT-11")
@pytest.mark.parametrize(("kind", "rows"), [("IVF_PQ", 3000), ("IVF_FLAT", 3000), ("IVF_FLAT", 1), ("IVF_PQ", 20)])
def test_index_whose_last_row_is_gone_is_trained_anew(tmp_path: Path, kind: str, rows: int) -> None:
    """Lance forgets its model, which was taken for an index that must not be trusted, and stopped the table's cycle."""
    table = make_articles_table(str(tmp_path / "t"), kinds=(kind,))
    digest = vector_model_digest(table, table.state().version, "vec_idx")
    merge_natively(table, articles(10_000, rows, centre=0.9), {A: 1})
    table.dataset().delete("id < 10000")

    report = run(table)
    again = run(table)

    covered = read_coverage(table, table.state().version).named("vec_idx")
    assert covered is not None
    assert again.outcome is JobOutcome.NOTHING_TO_DO
    if kind == "IVF_PQ" and rows < 256:
        assert (report.outcome, covered.is_trained, covered.vectors_missing) == (JobOutcome.NOTHING_TO_DO, False, 236)
        return
    assert (report.outcome, covered.is_trained, covered.unindexed_rows) == (JobOutcome.DONE, True, 0)
    assert vector_model_digest(table, table.state().version, "vec_idx") != digest
    assert recorded(table)["vec_idx"] == {A: 1}


@pytest.mark.req("CAT-12")
def test_tokenizer_and_scalar_settings_stay(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("BTREE", "BITMAP"))
    table.dataset().create_scalar_index(
        "title", "INVERTED", name="title_idx", base_tokenizer="whitespace", with_position=True, stem=False
    )

    def configured() -> dict[str, tuple]:
        found = table.dataset().describe_indices()
        return {index.name: (index.index_type, index.details) for index in found if not index.name.startswith("__")}

    before = configured()
    for generation in (1, 2):
        merge_natively(table, articles(2000 + 50 * generation, 50), {A: generation})
        run(table, settings=CatchupSettings(max_segments=1))
    assert configured() == before
    assert recorded(table) == {name: {A: 2} for name in before}


def test_segments_stay_below_the_bound(table: BaseTable) -> None:
    for generation in range(1, 6):
        merge_natively(table, articles(2000 + 50 * generation, 50), {A: generation})
        report = run(table, settings=CatchupSettings(max_segments=3))
        assert max(each.segments for each in report.indexes) <= 3
    one = run(table, merge_segments=True)
    assert {each.segments for each in one.indexes} == {1}
    assert run(table, merge_segments=True).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("CAT-15")
def test_index_that_cannot_be_extended_stays_behind_and_the_others_go_on(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    (broken,) = segments(table, "title_idx")
    table.store.delete_directory(f"{INDEX_DIRECTORY}/{broken}")

    report = run(table, settings=CatchupSettings(max_segments=1))

    results = {each.name: each.result for each in report.indexes}
    assert results.pop("title_idx") is IndexResult.FAILED
    assert set(results.values()) == {IndexResult.EXTENDED}
    assert report.outcome is JobOutcome.BLOCKED
    failed = next(each for each in report.indexes if each.name == "title_idx")
    assert failed.reason
    assert "title_idx" not in recorded(table)
    details = table.state().require_details()
    assert caught_up_generation(details, NAMES, A) == 0
    assert caught_up_generation(details, ("id_idx", "vec_idx"), A) == 1


def test_maintained_index_that_was_dropped_needs_somebody_and_blocks_no_other(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    table.dataset().drop_index("title_idx")
    report = run(table)
    verdicts = {each.name: each.verdict for each in report.indexes}
    assert verdicts["title_idx"] is CatchupVerdict.MISSING
    assert (report.outcome, report.outcome.exit_code) == (JobOutcome.BLOCKED, 5)
    assert recorded(table) == {name: {A: 1} for name in NAMES if name != "title_idx"}


def test_empty_table_gets_no_record(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=20, kinds=("BTREE",))
    delete_natively(table, articles(0, 20).select(["id"]), read_version=table.state().version, marks={A: 1})
    assert read_coverage(table, table.state().version).fragments == frozenset()
    report = run(table)
    assert [each.verdict for each in report.indexes] == [CatchupVerdict.EMPTY_TABLE]
    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert recorded(table) == {}


@pytest.mark.req("CAT-14")
def test_run_whose_lease_was_lost_changes_nothing(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    version = table.state().version

    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        catch_up(parts_of(table, guard=lost))
    assert table.state().version == version


@pytest.mark.req("CAT-14")
def test_admin_runs_one_index_under_its_own_lease(table: BaseTable) -> None:
    merge_natively(table, articles(2000, 50), {A: 1})
    admin = Table.open(table.uri)
    assert admin.run(CatchupRequest(indexes={"id_idx"}, dry_run=True)).outcome is JobOutcome.PLANNED
    assert admin.run(CatchupRequest(indexes={"id_idx"}), holder="a").outcome is JobOutcome.DONE
    assert admin.run(CatchupRequest(), holder="b").outcome is JobOutcome.DONE
    with pytest.raises(InvalidRequestError):
        admin.run(CatchupRequest(indexes={"no_such_idx"}))

"""What every merge must do, however its rows are prepared: one suite, both ways."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError, MemwalError
from memwal_core.jobs.merge.commit.passes import (
    MERGE_CLEANED,
    MERGE_COMMIT,
    MERGE_COMMITTED,
    MERGE_SEARCHED,
    MERGE_WRITTEN,
)
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import MergeSettings, Settings, StorageSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.rival_mergers import WAYS, Merger, Way, merge_until, noted_table, prepared_by
from testkit.tables.native_regions import Delete, Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import PEOPLE, PRIMARY_KEY_METADATA, make_people_table, people

REGIONS = [native_region_id(number) for number in range(3)]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def admin_of(uri: str, way: Way, **merge: int) -> Table:
    bounds = prepared_by(way, MergeSettings(batch_bytes=64 * 1024, **merge))
    settings = Settings(merge=bounds, storage=StorageSettings(fsync=False))
    return Table.open(uri, settings=settings)


def base(uri: str, columns: list[str] = PEOPLE.names, key: str = "id") -> dict[str, list[object]]:
    dataset = lance.dataset(uri)
    dataset.validate()
    return dataset.to_table().select(columns).sort_by(key).to_pydict()


def seen(admin: Table, columns: list[str] = PEOPLE.names, key: str = "id") -> dict[str, list[object]]:
    manifests = admin.opened.manifests.load_many(admin.opened.manifests.region_ids())
    return native_scan(admin.base.uri, manifests, columns, key).to_pydict()


HISTORIES = {
    "upserts": [[Put(people(1, 2, 50, name="a"))], [Put(people(2, 51, name="b"))]],
    "tombstones after upserts": [[Put(people(1, 50, name="a"))], [Delete(keys(1, 50, 3, 999))]],
    "deleted and brought back": [[Delete(keys(1, 2))], [Put(people(1, name="back"))], [Delete(keys(50))]],
    "only tombstones": [[Delete(keys(1, 2, 3))], [Delete(keys(4, 777))]],
    "nothing live and nothing there": [[Put(people(60)), Delete(keys(60))]],
    "duplicates within a generation": [[Put(people(1, 1, 1, name="x")), Put(people(1, name="last"))]],
    "every base row goes": [[Delete(keys(*range(20)))]],
    "every base row is replaced": [[Put(people(*range(20), name="new"))]],
}


@pytest.mark.req("MRG-01", "MRG-05", "MRG-07", "MRG-08", "MRG-09")
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("rows", [people(*range(20)), PEOPLE.empty_table()], ids=["base", "empty base"])
def test_merge_gives_what_the_native_reader_showed(tmp_path, way, history, rows):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=rows)
    write_native_generations(uri, REGIONS[0], history)
    admin = admin_of(uri, way)
    before = seen(admin)

    report = admin.run(MergeRequest())

    assert base(uri) == before
    assert report.outcome is JobOutcome.DONE
    joined = way == "join" and not any(isinstance(write, Delete) for writes in history for write in writes)
    assert report.strategy.joined is joined
    assert admin.base.state().require_details().merged_generation(REGIONS[0]) == len(history)
    assert report.leftovers == ()


def drop(ids: list[int]) -> list[Delete]:
    return [Delete(keys(*ids))] if ids else []


@pytest.mark.parametrize("deletes", [True, False])
def test_random_histories_of_many_regions_end_alike_in_both_ways(tmp_path, deletes):
    rng = random.Random(5)
    ends = []
    for way in WAYS:
        rng.seed(5)
        uri = str(tmp_path / way)
        make_people_table(uri, rows=people(*range(0, 300)))
        for remainder, region in enumerate(REGIONS):
            own = [number for number in range(600) if number % 3 == remainder]
            history = [
                [Put(people(*rng.choices(own, k=40), name=f"g{number}")), *drop(rng.sample(own, 12 * deletes))]
                for number in range(5)
            ]
            write_native_generations(uri, region, history)
        admin = admin_of(uri, way)
        expected = seen(admin)
        report = admin.run(MergeRequest())
        assert base(uri) == expected
        assert all(region.verdict is Verdict.COMPLETE for region in report.regions)
        ends.append((expected, {region.region_id: region.merged_after for region in report.regions}))
    assert ends[0] == ends[1]


def test_one_commit_takes_all_regions_and_deletes_in_one_version(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(20)))
    for region in range(3):
        write_native_generations(
            uri, REGIONS[region], [[Put(people(region, 100 + region))], [Delete(keys(100 + region, 10 + region))]]
        )
    admin = admin_of(uri, "units", unit_bytes=1)
    version = admin.base.state().version

    report = admin.run(MergeRequest())

    assert [commit.version for commit in report.commits] == [version + 1]
    assert report.commits[0].marks == dict.fromkeys(REGIONS, 2)
    assert (report.commits[0].upserts, report.commits[0].tombstones) == (3, 6)


@pytest.mark.req("MRG-27")
def test_repeated_merge_makes_no_version(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGIONS[0], HISTORIES["tombstones after upserts"])
    admin = admin_of(uri, way)
    admin.run(MergeRequest())
    version = admin.base.state().version

    assert admin.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert admin.base.state().version == version


COMPOSITE = pa.schema(
    [
        pa.field("place", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("number", pa.int32(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("value", pa.float32()),
    ]
)
TEXT = pa.schema(
    [pa.field("word", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("n", pa.int64())]
)
KEY_TYPES = [pa.int8(), pa.uint64(), pa.bool_(), pa.large_string(), pa.binary()]


def rows_of(schema: pa.Schema, *rows: tuple[object, ...]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def table_of(uri: str, rows: pa.Table) -> None:
    lance.write_dataset(rows, uri, max_rows_per_file=2)
    BaseTable.open(uri).create_mem_wal_index([])


def test_composite_keys_are_matched_as_a_whole(tmp_path, way):
    uri = str(tmp_path / "t")
    table_of(uri, rows_of(COMPOSITE, ("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 3.0), ("b", 2, 4.0)))
    gone = rows_of(COMPOSITE, ("b", 1, 0.0), ("c", 2, 0.0)).select(["place", "number"])
    write_native_generations(
        uri, REGIONS[0], [[Put(rows_of(COMPOSITE, ("a", 2, 20.0), ("c", 1, 30.0)))], [Delete(gone)]]
    )

    admin_of(uri, way).run(MergeRequest())

    found = lance.dataset(uri).to_table().sort_by([("place", "ascending"), ("number", "ascending")])
    assert list(zip(*found.to_pydict().values(), strict=True)) == [
        ("a", 1, 1.0), ("a", 2, 20.0), ("b", 2, 4.0), ("c", 1, 30.0),
    ]  # fmt: skip


def test_text_keys_are_matched(tmp_path, way):
    uri = str(tmp_path / "t")
    table_of(uri, rows_of(TEXT, ("ä", 1), ("b", 2), ("", 3), ("d", 4)))
    gone = rows_of(TEXT, ("b", 0), ("", 0)).select(["word"])
    write_native_generations(uri, REGIONS[0], [[Put(rows_of(TEXT, ("ä", 10), ("z", 20))), Delete(gone)]])

    admin_of(uri, way).run(MergeRequest())

    assert base(uri, TEXT.names, "word") == {"word": ["d", "z", "ä"], "n": [4, 20, 10]}


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_key_types_beyond_plain_integers_are_matched(tmp_path, way, kind):
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field("k", kind, nullable=False, metadata=PRIMARY_KEY_METADATA), pa.field("v", pa.int64())])
    first, second = {
        pa.int8(): (-128, 127), pa.uint64(): (0, 2**64 - 1), pa.bool_(): (False, True),
        pa.large_string(): ("", "x"), pa.binary(): (b"", b"\x00\xff"),
    }[kind]  # fmt: skip
    table_of(uri, rows_of(schema, (first, 1), (second, 2)))
    gone = rows_of(schema, (first, 0)).select(["k"])
    write_native_generations(uri, REGIONS[0], [[Put(rows_of(schema, (second, 20)))], [Delete(gone)]])

    admin_of(uri, way).run(MergeRequest())

    assert base(uri, schema.names, "k") == {"k": [second], "v": [20]}


@pytest.mark.req("MRG-19")
def test_gap_is_refused_and_the_generation_before_it_is_merged(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1))
    write_native_generations(uri, REGIONS[0], [[Put(people(1, name=f"g{number}"))] for number in (1, 2, 3)])
    admin = admin_of(uri, way)
    lost = admin.opened.manifests.load(REGIONS[0]).flushed_generations[1].path
    admin.base.store.delete_directory(f"_mem_wal/{REGIONS[0]}/{lost}")

    report = admin.run(MergeRequest())

    assert report.outcome is JobOutcome.PARTIAL  # Its files are lost, which concerns no other region.
    assert lost in report.regions[0].evidence
    assert base(uri)["name"] == ["g1"]


@pytest.mark.req("MRG-17")
def test_unknown_region_is_refused(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri)
    admin = admin_of(uri, way)
    with pytest.raises(MemwalError, match="no such region"):
        admin.run(MergeRequest(regions={native_region_id(99)}))


def test_key_in_two_regions_stops_both_ways_before_anything_is_visible(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1))
    for region in REGIONS[:2]:
        write_native_generations(uri, region, [[Put(people(500, name=str(region)))]])
    admin = admin_of(uri, way)
    version = admin.base.state().version

    with pytest.raises(CorruptionError, match=r"more than one region.*columns outside of the key"):
        admin.run(MergeRequest())

    assert admin.base.state().version == version
    assert base(uri)["id"] == [1]


PLACES = [MERGE_WRITTEN, MERGE_SEARCHED, MERGE_COMMIT, MERGE_COMMITTED, MERGE_CLEANED]


@pytest.mark.req("MRG-06", "MRG-18")
@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_crash_at_each_place_leaves_all_or_nothing_and_a_repeat_finishes(tmp_path, way, place, deletes):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(20)))
    write_native_generations(uri, REGIONS[0], [[Put(people(1, 50, name="a"))], [*drop([2] * deletes), Put(people(51))]])
    expected = seen(admin_of(uri, way))
    before = base(uri)

    with pytest.raises(SimulatedCrash):
        merge_until(uri, ArmedFailpoints().arm(place), way=way)

    progress = BaseTable.open(uri).state().require_details().merged_generation(REGIONS[0])
    assert base(uri) == (expected if progress else before)
    assert progress == (2 if place in {MERGE_COMMITTED, MERGE_CLEANED} else 0)
    merge_until(uri, way=way)
    assert base(uri) == expected


DUPLICATES = {"alone": [Put(people(1, name="new"))], "beside others": [Put(people(1, 2, 60, name="new"))]}


@pytest.mark.parametrize("writes", DUPLICATES.values(), ids=DUPLICATES)
def test_key_that_the_base_table_has_twice_stops_both_ways(tmp_path, way, writes):
    """S10: `native` merged it and kept it twice, `single_commit` refused it, unless other keys were merged with it."""
    uri = str(tmp_path / "t")
    lance.write_dataset(people(0, 1, 2, 1, 3), uri, max_rows_per_file=2)
    BaseTable.open(uri).create_mem_wal_index([])
    write_native_generations(uri, REGIONS[0], [writes])
    admin = admin_of(uri, way)
    version = admin.base.state().version
    files = {path.name for path in Path(uri, "data").iterdir()}

    with pytest.raises(CorruptionError, match="more than once in the base table"):
        admin.run(MergeRequest())

    assert admin.base.state().version == version
    assert {path.name for path in Path(uri, "data").iterdir()} == files


def test_damaged_generation_is_told_alike_in_both_ways(tmp_path):
    """S10: whoever prepares, the same verdict, and nothing merged."""
    told = []
    for way in WAYS:
        uri = str(tmp_path / way)
        make_people_table(uri, rows=people(1))
        write_native_generations(uri, REGIONS[0], [[Put(people(1, 2, name="g1"))]])
        (lost,) = Path(uri, "_mem_wal", str(REGIONS[0])).glob("*_gen_1/data/*")
        lost.unlink()
        report = admin_of(uri, way).run(MergeRequest())
        told.append((report.outcome, [region.verdict for region in report.regions], report.commits))
        assert lost.name in report.regions[0].evidence
        assert BaseTable.open(uri).state().require_details().merged_generation(REGIONS[0]) == 0

    assert told[0] == told[1]
    assert told[0][0] is JobOutcome.PARTIAL


def test_indexes_answer_for_merged_rows_and_catch_up_is_credited(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(2_000)))
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    lance.dataset(uri).create_scalar_index("name", "BTREE")
    history = [[Put(people(*range(500, 1_500, 2), *range(3_000, 3_100), name="new"))], [Delete(keys(*range(100)))]]
    write_native_generations(uri, REGIONS[0], history)

    admin_of(uri, way).run(MergeRequest())

    def answers() -> list[int]:
        dataset = lance.dataset(uri)
        filters = ["id = 500", "id = 501", "name = 'new'", "name = 'p500'", "name = 'p501'", "id < 100", "id = 3050"]
        return [dataset.count_rows(each) for each in filters]

    assert answers() == [1, 1, 600, 0, 1, 0, 1]
    lance.dataset(uri).optimize.optimize_indices()
    assert answers() == [1, 1, 600, 0, 1, 0, 1]
    lance.dataset(uri).validate()
    catchup = BaseTable.open(uri).state().require_details().index_catchup
    assert {name: dict(progress) for name, progress in catchup.items()} == {
        "id_idx": {REGIONS[0]: 2},
        "name_idx": {REGIONS[0]: 2},
    }


def test_tables_with_stable_row_ids_merge_alike(tmp_path, way):
    uri = str(tmp_path / "t")
    lance.write_dataset(people(*range(100)), uri, enable_stable_row_ids=True, max_rows_per_file=30)
    lance.dataset(uri).create_scalar_index("name", "BTREE")
    BaseTable.open(uri).create_mem_wal_index([])
    write_native_generations(uri, REGIONS[0], [[Put(people(5, 200, name="new"))], [Delete(keys(40))]])
    before = seen(admin_of(uri, way))

    admin_of(uri, way).run(MergeRequest())

    assert base(uri) == before
    assert [lance.dataset(uri).count_rows(each) for each in ("name = 'new'", "name = 'p5'", "name = 'p40'")] == [
        2,
        0,
        0,
    ]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_file_format_of_the_table_is_kept(tmp_path, version):
    uri = str(tmp_path / "t")
    lance.write_dataset(people(*range(50)), uri, data_storage_version=version)
    BaseTable.open(uri).create_mem_wal_index([])
    write_native_generations(uri, REGIONS[0], [[Put(people(5, 200, name="new"))], [Delete(keys(40))]])

    admin_of(uri, "units").run(MergeRequest())

    formats = {
        (each.file_major_version, each.file_minor_version)
        for fragment in lance.dataset(uri).get_fragments()
        for each in fragment.metadata.files
    }
    assert formats == {tuple(map(int, version.split(".")))}
    assert lance.dataset(uri).count_rows() == 50


def test_field_ids_with_gaps_and_zero_copy_generations_merge_alike(tmp_path, way):
    uri = str(tmp_path / "t")
    fast = Settings(storage=StorageSettings(fsync=False))
    table = make_people_table(uri, rows=people(*range(50)), settings=fast, dropped_columns=("x", "y"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40, 60), name="first"))
        writer.put(people(*range(45, 50), name="again"))
        writer.flush()
        writer.delete(keys(41, 59))
        writer.flush()

    admin_of(uri, way).run(MergeRequest())

    found = base(uri)
    names = dict(zip(found["id"], found["name"], strict=True))
    assert sorted(names) == [*range(41), *range(42, 59)]
    assert (names[40], names[45], names[58], names[3]) == ("first", "again", "first", "p3")


@pytest.mark.s3
@pytest.mark.parametrize("deletes", [True, False])
def test_merge_on_s3_gives_the_same(s3, way, deletes):
    uri, options = s3.uri(f"bucket/{way}-{deletes}.lance"), s3.storage_options
    table = make_people_table(uri, rows=people(*range(5)), storage_options=options)
    with TableWriter.open(table) as writer:
        writer.put(people(1, 7, name="written"))
        if deletes:
            writer.delete(keys(2))
        writer.flush()
    settings = Settings(merge=prepared_by(way))

    report = Table.open(uri, storage_options=options, settings=settings).run(MergeRequest())

    found = lance.dataset(uri, storage_options=dict(options)).to_table().sort_by("id")
    left = [0, 1, 3, 4, 7] if deletes else [0, 1, 2, 3, 4, 7]
    assert found.column("id").to_pylist() == left
    assert found.column("name").to_pylist() == ["written" if key in {1, 7} else f"p{key}" for key in left]
    assert report.leftovers == ()


def test_bucket_regions_of_both_kinds_of_writers_merge_in_one_commit(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(people(*range(10)), uri)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 3)])
    with TableWriter.open(table) as writer:
        writer.put(people(*range(5, 30), name="ours"))
        writer.flush()
    admin = admin_of(uri, "units")
    regions = admin.opened.manifests.region_ids()

    report = admin.run(MergeRequest())

    assert len(regions) == 3
    assert len(report.commits) == 1
    assert set(report.commits[0].marks) == set(regions)
    assert base(uri)["id"] == list(range(30))


def test_watched_merger_reads_no_version_it_does_not_need(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1))
    write_native_generations(uri, REGIONS[0], [[Put(people(2))]])
    table = noted_table(uri)

    report = Merger(table, way=way).run()

    assert report.commits[0].attempts == 1
    assert len(table.versions_read) <= 4

"""S7: the doctor proves that a table can be read and merged, and says which command mends what cannot."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
import pytest
from lancedb.table import LanceTable
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import UnavailableError
from memwal_core.format.footer import read_file_footer
from memwal_core.format.paths import manifest_path
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.observe.doctor.checks import CHECKS
from memwal_core.observe.doctor.commands import COMMANDS
from memwal_core.observe.doctor.sampling import KeySampler, SampleBounds
from memwal_core.observe.signals import SIGNALS
from memwal_core.region import drain
from memwal_core.region.spec import identity_spec
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.faults.faulty_store import FaultyStore
from testkit.faults.file_damage import damage_file
from testkit.s3_server import S3Server
from testkit.tables.garbage import write_generations
from testkit.tables.generations import WRITERS, GenerationTable, make_generation_table
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people, reopened

SIGNAL_NAMES = {facts.name for facts in SIGNALS.values()}


def doctor(uri: str, *options: str) -> tuple[int, dict]:
    """Run the command; return its exit code and its document."""
    result = CliRunner().invoke(app, ["doctor", uri, "--json", *options])
    document = json.loads(result.stdout)
    return result.exit_code, document


def damage_found(uri: str, *options: str) -> dict[str, dict]:
    _, document = doctor(uri, *options)
    return {each["finding"]: each for each in document["findings"] if "page" not in each["evidence"]}


@pytest.fixture(params=WRITERS)
def made(tmp_path: Path, request: pytest.FixtureRequest) -> GenerationTable:
    return make_generation_table(str(tmp_path / "t"), request.param)


def base_file(made: GenerationTable) -> Path:
    return next((Path(made.table.uri) / "data").iterdir())


@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["", "deep"])
def test_healthy_table_has_no_finding(made: GenerationTable, deep: list[str]) -> None:
    assert damage_found(made.table.uri, *deep) == {}
    made.merged()
    assert damage_found(made.table.uri, *deep) == {}
    _, document = doctor(made.table.uri, *deep)
    assert document["facts"]["base_files"] >= 1
    assert document["facts"]["base_rows_read"] == (5 if deep else 0)


def test_healthy_table_of_lancedb_has_no_finding(tmp_path: Path) -> None:
    uri = lancedb_table(tmp_path)
    assert damage_found(uri, "--deep") == {}
    Table.open(uri).run(MergeRequest())
    assert damage_found(uri, "--deep") == {}


def lancedb_table(tmp_path: Path) -> str:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    table: LanceTable = lancedb.connect(str(tmp_path)).create_table("people", schema=schema)
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=schema)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    table.close_lsm_writers()
    return str(tmp_path / "people.lance")


def test_plain_lance_table_is_not_called_healthy(tmp_path: Path) -> None:
    uri = str(tmp_path / "plain")
    lance.write_dataset(people(1), uri)
    code, document = doctor(uri)
    assert (code, document["verdict"], document["healthy"]) == (3, "not a MemWAL table", False)
    assert document["findings"] == []


def zeroed_base(made: GenerationTable) -> None:
    damage_file(base_file(made), "zeroed")


def truncated_base(made: GenerationTable) -> None:
    damage_file(base_file(made), "truncated")


def deleted_base(made: GenerationTable) -> None:
    damage_file(base_file(made), "deleted")


def deleted_deletions(made: GenerationTable) -> None:
    lance.dataset(made.table.uri).delete("id = 2")
    shutil.rmtree(Path(made.table.uri) / "_deletions")


def torn(made: GenerationTable) -> None:
    newest = lance.write_dataset(people(50), made.table.uri, mode="append").version
    damage_file(Path(made.table.uri) / made.table.base.manifests.locate(newest).path, "empty")


def gone(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())


def forgotten(made: GenerationTable) -> None:
    made.table.opened.manifests.update(made.region_id, lambda stored: drain(stored, {2}))


def damaged(part: str, kind: str) -> Callable[[GenerationTable], None]:
    def damage(made: GenerationTable) -> None:
        for file in made.files(part):
            if file.suffix in (".manifest", ".lance"):
                damage_file(file, kind)

    damage.__name__ = f"{kind}_{part}"
    return damage


def no_region_manifest(made: GenerationTable) -> None:
    """The newest version is deleted, and the hint still names it."""
    newest = made.manifest
    made.store.delete(manifest_path(newest.region_id, newest.version))


MATRIX = [
    (zeroed_base, "base-file-damaged"),
    (truncated_base, "base-file-damaged"),
    (deleted_base, "base-file-damaged"),
    (deleted_deletions, "base-file-damaged"),
    (torn, "table-unreadable"),
    (gone, "generation-missing"),
    (forgotten, "generation-hole"),
    *((damaged("data", kind), "generation-damaged") for kind in ("zeroed", "truncated", "deleted", "empty")),
    *((damaged("_versions", kind), "generation-damaged") for kind in ("zeroed", "truncated", "deleted", "empty")),
    (no_region_manifest, "manifest-unreadable"),
]


@pytest.mark.parametrize(("damage", "finding"), MATRIX, ids=lambda value: getattr(value, "__name__", value))
def test_damage_is_found_and_the_command_that_mends_it_is_named(
    made: GenerationTable, damage: Callable[[GenerationTable], None], finding: str
) -> None:
    damage(made)
    code, document = doctor(made.table.uri)
    found = {each["finding"]: each for each in document["findings"] if "page" not in each["evidence"]}
    assert code == 5
    assert list(found) == [finding], found
    assert found[finding]["severity"] == "critical"
    command = found[finding]["command"]
    if finding not in ("base-file-damaged", "manifest-unreadable"):
        assert command
        assert CliRunner().invoke(app, command.split()[1:]).exit_code == 0
        assert damage_found(made.table.uri) == {}
    else:
        assert command == ""
        assert found[finding]["remedy"]


@pytest.mark.parametrize("fragments", [20, 60])
def test_p8_a_deep_look_asks_once_for_each_file_of_a_table(tmp_path: Path, fragments: int) -> None:
    """It asked for the size of each, too, every ten minutes; damage is found as before."""
    uri = str(tmp_path / "t")
    made = make_people_table(uri, rows=people(0))
    for number in range(1, fragments):
        lance.write_dataset(people(number), uri, mode="append")
    store = FaultyStore(made.store)

    def looked() -> set[str]:
        store.calls.clear()
        opened = OpenTable.of(reopened(made, store))
        return {each.finding_id for each in Table(opened).doctor().damage}

    assert not looked()
    asked = Counter(each.operation for each in store.calls if each.path.startswith("data/"))
    assert asked == {"get_range": fragments}

    lost, cut = list((tmp_path / "t" / "data").iterdir())[:2]
    lost.unlink()
    assert looked() == {"base-file-damaged"}
    lost.write_bytes(cut.read_bytes()[:-8])
    assert looked() == {"base-file-damaged"}


def test_damage_between_sound_ends_of_a_base_file_is_found_by_reading_it(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "ours")
    uri = made.table.uri
    lance.write_dataset(people(*range(100, 5000)), uri, mode="append")
    largest = max((Path(uri) / "data").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    footer = read_file_footer(bytes(data), len(data))
    data[footer.columns_start : footer.column_places] = bytes(footer.column_places - footer.columns_start)
    largest.write_bytes(data)
    assert "base-file-damaged" not in damage_found(uri)
    assert "base-file-damaged" in damage_found(uri, "--deep")


def test_generation_that_no_merge_can_take_is_named_before_the_merge(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "ours")
    uri = made.table.uri
    lance.dataset(uri).drop_columns(["score"])
    lance.dataset(uri).add_columns(pa.schema([pa.field("score", pa.int32())]))
    assert damage_found(uri) == {}  # A dropped column is no obstacle: the ids differ.
    assert made.merged()


def test_generation_without_a_column_that_must_have_values_is_unmergeable(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), WRITERS[-1])
    uri = made.table.uri
    lance.dataset(uri).drop_index("__lance_mem_wal")  # Lance refuses such columns while it is there.
    lance.dataset(uri).add_columns({"rank": "1"})
    lance.dataset(uri).alter_columns({"path": "rank", "nullable": False})
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    found = damage_found(uri)["generation-unmergeable"]
    assert "NOT NULL column 'rank'" in found["evidence"]["problem"]
    assert found["region_id"] == str(made.region_id)
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.BLOCKED


def test_moved_table_whose_generations_name_its_old_address_is_told(tmp_path: Path) -> None:
    made, moved = str(tmp_path / "made"), str(tmp_path / "moved")
    write_generations(make_people_table(made, buckets=1), [1, 2], name="x")
    shutil.move(made, moved)
    found = damage_found(moved)
    assert list(found) == ["table-moved"]
    (address,) = found["table-moved"]["evidence"]["addresses"]
    assert address.startswith(made)
    assert found["table-moved"]["command"] == f"memwal relocate {moved}"


def test_keys_are_sampled_over_a_change_of_type(tmp_path: Path) -> None:
    """The samples of generations with other types could not be put together, which ended the doctor."""
    region = tmp_path / "_mem_wal" / str(native_region_id(1))
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("place", pa.int64())])
    for name, kind in (("old", pa.int32()), ("new", pa.int64())):
        rows = pa.table({"id": pa.array([1, 2]), "place": pa.array([3, 4], kind)})
        lance.write_dataset(rows, str(region / name))
    field_ids = {"id": 0, "place": 1}
    spec = identity_spec(1, schema.field("place"), field_ids)
    sampler = KeySampler(schema, ["id"], field_ids, {}, SampleBounds(10, 100))
    sample = sampler.draw([str(region / "old"), str(region / "new")], spec)
    assert sample is not None
    assert sample.keys.to_pydict() == {"id": [2, 1]} or sample.keys.to_pydict() == {"id": [1, 2]}
    assert sorted(sample.region_values or ()) == ["(3,)", "(4,)"]


def test_table_whose_rows_no_merge_can_take_is_named(tmp_path: Path) -> None:
    """pylance makes regions for tables with blobs, and a merge ended in a traceback."""
    uri = str(tmp_path / "blobs")
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
    ]
    rows = pa.table({"id": [1], "blob": [b"x"]}, schema=pa.schema(fields))
    lance.write_dataset(rows, uri).initialize_mem_wal(unsharded=True)
    lance.dataset(uri).mem_wal_writer(str(native_region_id(1))).close()
    found = damage_found(uri)
    assert found["merge-impossible"]["severity"] == "critical"
    assert "blob" in found["merge-impossible"]["evidence"]["problem"]


def test_commands_are_those_of_findings_that_exist() -> None:
    names = {name for check in CHECKS for name in check.__code__.co_consts if isinstance(name, str) and "-" in name}
    assert COMMANDS.keys() <= names | SIGNAL_NAMES


def test_repaired_table_is_healthy_again(made: GenerationTable) -> None:
    gone(made)
    made.table.run(RepairRequest())
    assert damage_found(made.table.uri, "--deep") == {}


@pytest.mark.s3
def test_outage_while_files_are_looked_at_is_no_damage(s3: S3Server, tmp_path: Path) -> None:
    """A page told of a flushed MemTable that could not be read; the store had not answered."""
    made = make_generation_table(s3.uri(f"bucket/{tmp_path.name}/t.lance"), "ours", s3.storage_options)
    with faulty_proxy(s3.endpoint) as proxy:
        options = {**s3.storage_options, "aws_endpoint": proxy.endpoint, "client_max_retries": "0"}
        settings = Settings(storage=StorageSettings(max_attempts=1, read_timeout_s=2))
        table = Table.open(made.table.uri, storage_options=options, settings=settings)
        proxy.answer("GET", 503, times=1000, path=f"{made.directory().rpartition('/')[2]}%2F")

        with pytest.raises(UnavailableError):
            table.doctor(contents=True)
    assert made.table.doctor(contents=True).findings == ()

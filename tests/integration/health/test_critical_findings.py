"""Whatever the doctor calls critical reaches the command for monitoring, the watch, and the alerts."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import lance
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.cli.watch.exposition import exposition
from memwal_core.cli.watch.rounds import Watcher
from memwal_core.coordination.freeze import FreezeCause
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.format.paths import (
    ARROW_WAL_SUFFIX,
    LANCE_WAL_SUFFIX,
    RECORD_DIRECTORY,
    generation_path,
    manifest_directory,
    manifest_path,
    region_directory,
    version_hint_path,
    wal_entry_path,
)
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.observe.findings import Level
from memwal_core.region import RegionStatus
from memwal_core.register import hint_bytes
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.faults.file_damage import damage_file
from testkit.tables.garbage import write_generations
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people

ROOT = Path(__file__).resolve().parents[3]
CHECKS = ROOT / "memwal_core" / "observe" / "doctor" / "checks"


class Patient:
    """A table with two regions of ours and two flushed generations in each."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        made = make_people_table(uri, rows=people(*range(20)), buckets=2)
        write_generations(made, list(range(100, 120)), list(range(110, 130)), name="new", owned=True)

    @property
    def table(self) -> Table:
        return Table.open(self.uri)

    @property
    def vandal(self) -> Vandal:
        return Vandal(self.table.base)

    @property
    def region(self):
        return self.table.opened.manifests.region_ids()[0]

    @property
    def manifest(self):
        return self.table.opened.manifests.load(self.region)

    def generation(self) -> Path:
        return Path(self.uri) / generation_path(self.region, self.manifest.flushed_generations[0].path)


def base_file_gone(made: Patient) -> None:
    next((Path(made.uri) / "data").iterdir()).unlink()


def generation_unmergeable(made: Patient) -> None:
    lance.dataset(made.uri).drop_index("__lance_mem_wal")
    lance.dataset(made.uri).add_columns({"rank": "1"})
    lance.dataset(made.uri).alter_columns({"path": "rank", "nullable": False})
    lance.dataset(made.uri).initialize_mem_wal(unsharded=True)


def key_in_two_regions(made: Patient) -> None:
    shutil.rmtree(made.uri)
    make_people_table(made.uri)
    for number in (1, 2):
        write_native_generations(made.uri, native_region_id(number), [[Put(people(105, 500 + number))]])


def row_in_wrong_region(made: Patient) -> None:
    with RegionWriter.open(made.table.base, made.region) as writer:
        writer.put(people(*range(10_000, 10_040)))
        writer.flush()


def region_value_twice(made: Patient) -> None:
    made.table.opened.manifests.create(
        native_region_id(9),
        region_spec_id=made.manifest.region_spec_id,
        region_field_values=made.manifest.region_field_values,
        status=RegionStatus.SEALED,
    )


def blobs(made: Patient) -> None:
    shutil.rmtree(made.uri)
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
    ]
    rows = pa.table({"id": [1], "blob": [b"x"]}, schema=pa.schema(fields))
    lance.write_dataset(rows, made.uri).initialize_mem_wal(unsharded=True)
    lance.dataset(made.uri).mem_wal_writer(str(native_region_id(1))).close()


def record_damaged(made: Patient) -> None:
    made.table.run(MergeRequest())
    for version in (Path(made.uri) / RECORD_DIRECTORY).iterdir():
        version.write_bytes(b"no json")


def restored(made: Patient) -> None:
    before = made.table.base.dataset().version
    made.table.run(MergeRequest())
    lance.dataset(made.uri, version=before).restore()


def region_gone(made: Patient) -> None:
    made.table.run(MergeRequest())
    shutil.rmtree(Path(made.uri) / region_directory(made.region))
    made.table.run(MergeRequest())


def version_hole(made: Patient) -> None:
    version, store = made.manifest.version, made.table.base.store
    store.delete(manifest_path(made.region, version - 1))
    store.put(version_hint_path(manifest_directory(made.region)), hint_bytes(version - 2))


def wal_hole(made: Patient) -> None:
    last = made.vandal.wal_ids(made.region, LANCE_WAL_SUFFIX)[-1]
    made.vandal.copy_wal_entry(made.region, (last, LANCE_WAL_SUFFIX), (last + 2, LANCE_WAL_SUFFIX))


def wal_entry_zeroed(made: Patient) -> None:
    with RegionWriter.open(made.table.base, made.region) as writer:
        entry = writer.put(people(7)).wal_id
    damage_file(Path(made.uri) / wal_entry_path(made.region, entry, LANCE_WAL_SUFFIX), "zeroed")


def two_codecs(made: Patient) -> None:
    last = made.vandal.wal_ids(made.region, LANCE_WAL_SUFFIX)[-1]
    made.vandal.copy_wal_entry(made.region, (last, LANCE_WAL_SUFFIX), (last + 1, ARROW_WAL_SUFFIX))


def index_claims_more(made: Patient) -> None:
    caught_up = MappingProxyType({"score_idx": MappingProxyType({made.region: 1})})
    made.vandal.details(lambda old: replace(old, index_catchup=caught_up))


def merged_beyond(made: Patient) -> None:
    merged = MappingProxyType({made.region: 9})
    made.vandal.details(lambda old: replace(old, merged_generations=merged))


SITUATIONS: dict[str, Callable[[Patient], object]] = {
    "base-file-damaged": base_file_gone,
    "catchup-ahead": index_claims_more,
    "generation-damaged": lambda made: shutil.rmtree(made.generation() / "data"),
    "generation-hole": lambda made: made.vandal.manifest(
        made.region, flushed_generations=made.manifest.flushed_generations[1:]
    ),
    "generation-missing": lambda made: shutil.rmtree(made.generation()),
    "generation-unmergeable": generation_unmergeable,
    "index-gone": lambda made: lance.write_dataset(people(1), made.uri, mode="overwrite"),
    "key-in-two-regions": key_in_two_regions,
    "manifest-missing": lambda made: made.vandal.remove(made.region, "manifest"),
    "manifest-unreadable": lambda made: made.vandal.garble_manifest(made.region),
    "manifest-version-hole": version_hole,
    "manifest-went-back": lambda made: made.vandal.manifest(made.region, writer_epoch=0),
    "merge-impossible": blobs,
    "progress-ahead": merged_beyond,
    "progress-went-back": restored,
    "record-unreadable": record_damaged,
    "region-frozen": region_gone,
    "region-not-sealed": lambda made: made.vandal.manifest(made.region, status=RegionStatus.ACTIVE),
    "region-spec-unknown": lambda made: made.vandal.manifest(made.region, region_spec_id=77),
    "region-value-duplicate": region_value_twice,
    "row-in-wrong-region": row_in_wrong_region,
    "table-frozen": lambda made: made.table.opened.freezes.add(FreezeCause.CHECK_FAILED, {}, "a test"),
    "table-unreadable": lambda made: made.vandal.index_payload(b"\x4a\xff"),
    "wal-codecs-mixed": two_codecs,
    "wal-entry-damaged": wal_entry_zeroed,
    "wal-hole": wal_hole,
}
"""Critical finding -> what brings it about."""


def critical_in_the_source() -> set[str]:
    """Return the findings that some check of the doctor may call critical."""
    calls = [node for path in CHECKS.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return {
        ast.literal_eval(call.args[0])
        for call in calls
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "Finding"
        and "Severity.CRITICAL" in ast.unparse(call.args[1])
    }


def quick_by_the_page() -> set[str]:
    """Return the findings that a look without ``--deep`` finds, says ``docs/doctor.md``."""
    rows = re.findall(r"^\| `([\w-]+)` \| critical \| yes \|", (ROOT / "docs" / "doctor.md").read_text(), re.M)
    return set(rows)


def watched(uri: str) -> str:
    """Return what one round of the watch offers to Prometheus."""
    registry = Registry(tables=(RegisteredTable(name="t", uri=uri),))
    deep = DeepLooks(lambda entry: Table.open(entry.uri).doctor(), ManualClock(), 600)
    watcher = Watcher(
        lambda: registry,
        lambda entry: Table.open(entry.uri).health(),
        clock=ManualClock(),
        deadline_s=600,
        concurrency=1,
        deep=deep,
    )
    return exposition(watcher.look(wait_for_deep=True))


def test_every_critical_finding_of_the_doctor_is_brought_about_here() -> None:
    assert critical_in_the_source() == set(SITUATIONS)


def test_every_finding_of_level_page_is_an_alert_that_pages() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    [rule] = [each for each in rules if each["alert"] == "MemwalFinding"]

    assert rule["expr"] == 'memwal_finding{level="page"} == 1'
    assert rule["labels"]["severity"] == "page"


@pytest.mark.slow
@pytest.mark.parametrize("finding", sorted(SITUATIONS))
def test_critical_finding_reaches_every_face(finding: str, tmp_path: Path) -> None:
    made = Patient(str(tmp_path / "t"))
    SITUATIONS[finding](made)

    found = made.table.doctor()
    quick = made.table.health()
    checked = CliRunner().invoke(app, ["status", made.uri, "--check", "--deep", "--json"])

    [severity] = {each.severity.value for each in found.damage if each.finding_id == finding}
    assert severity == "critical"
    assert (checked.exit_code, f'"finding": "{finding}"' in checked.stdout) == (7, True)
    assert re.search(rf'^memwal_finding{{memwal_table="t",finding="{finding}",level="page"', watched(made.uri), re.M)
    if finding in quick_by_the_page():
        assert finding in {each.finding_id for each in quick.damage}
        assert quick.level is Level.PAGE

"""The command for monitoring, the doctor and the page say the same of one table."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import lance
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.format.paths import (
    generation_path,
    manifest_directory,
    manifest_path,
    quality_result_path,
    version_hint_path,
)
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.observe.findings import Level
from memwal_core.observe.health import examine
from memwal_core.observe.signals import Signal
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.register import hint_bytes
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import PageSettings
from memwal_core.table import Table
from memwal_core.web import create_app
from testkit.faults.damage import Vandal
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

Damage = Callable[[BaseTable], None]
_COLOURS = {0: "good", 6: "fair", 7: "bad"}


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 3], [4], [5], name="new")
    return made


class _Listed:
    def __init__(self, uri: str) -> None:
        self._entry = RegisteredTable(name="t", uri=uri)

    def registry(self) -> Registry:
        return Registry(tables=(self._entry,))

    def open(self, table: RegisteredTable) -> Table:
        return Table.open(table.uri)


def shown(table: BaseTable) -> tuple[int, int, list[str]]:
    """Return the exit codes of `status --check` and `doctor`, and the colours of the two pages."""
    commands = [CliRunner().invoke(app, [*command, table.uri]) for command in (("status", "--check"), ("doctor",))]

    async def pages() -> list[str]:
        transport = httpx.ASGITransport(create_app(_Listed(table.uri), settings=PageSettings(patience_s=300)))
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return [(await client.get(path)).text for path in ("/", "/table?name=t")]

    colours = [re.findall(r'class="score (\w+)"', text)[0] for text in asyncio.run(pages())]
    return commands[0].exit_code, commands[1].exit_code, colours


def region(table: BaseTable):
    [region_id] = Table.open(table.uri).opened.manifests.region_ids()
    return region_id


def generation_gone(table: BaseTable) -> None:
    manifest = Table.open(table.uri).opened.manifests.load(region(table))
    shutil.rmtree(Path(table.uri) / generation_path(region(table), manifest.flushed_generations[1].path))


def generation_unrecorded(table: BaseTable) -> None:
    manifest = Table.open(table.uri).opened.manifests.load(region(table))
    Vandal(table).manifest(region(table), flushed_generations=manifest.flushed_generations[1:])


def manifest_version_gone(table: BaseTable) -> None:
    newest = Table.open(table.uri).opened.manifests.versions(region(table))[-1]
    table.store.delete(manifest_path(region(table), newest - 2))
    table.store.put(version_hint_path(manifest_directory(region(table))), hint_bytes(newest - 3))


def all_manifests_gone(table: BaseTable) -> None:
    assert Vandal(table).remove(region(table), "manifest")


def restored_to_before_a_merge(table: BaseTable) -> None:
    before = table.dataset().version
    Table.open(table.uri).run(MergeRequest())
    lance.dataset(table.uri, version=before).restore()


def index_gone(table: BaseTable) -> None:
    lance.write_dataset(people(1), table.uri, mode="overwrite")


def key_of_no_spec(table: BaseTable) -> None:
    Vandal(table).manifest(region(table), region_spec_id=77)


def failing_job(table: BaseTable) -> None:
    opened = Table.open(table.uri).opened
    for _ in range(3):
        run = opened.new_run(JobKey("merge"), "a test")
        opened.ledger.end(run, RunEnd(run.started + timedelta(seconds=1), RunOutcome.FAILED, error="UnavailableError"))


def failed_check(table: BaseTable) -> None:
    table.store.put(quality_result_path("after"), b"no json")


def held(table: BaseTable) -> None:
    QuarantineStore(table.store).add(Quarantined(region(table), 2, ("bad",), ""))


def test_sound_table_is_well_everywhere(table: BaseTable) -> None:
    assert shown(table) == (0, 0, ["good", "good"])


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (generation_gone, 7),
        (generation_unrecorded, 7),
        (manifest_version_gone, 7),
        (all_manifests_gone, 7),
        (restored_to_before_a_merge, 7),
        (index_gone, 7),
        (key_of_no_spec, 7),
        (failing_job, 7),
        (failed_check, 7),
        (held, 6),
    ],
)
def test_every_face_shows_what_is_wrong(table: BaseTable, damage: Damage, code: int) -> None:
    damage(table)

    assert shown(table) == (code, 5, [_COLOURS[code]] * 2)


@pytest.mark.parametrize(("page", "code"), [("9", 6), ("3", 7)])
def test_table_that_pages_is_never_shown_as_fair(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch, page: str, code: int
) -> None:
    """Three waiting generations paged in the command for monitoring, and the page said 100 of 100."""
    monkeypatch.setenv("MEMWAL_STATUS__PENDING_GENERATIONS_WARN", "2")
    monkeypatch.setenv("MEMWAL_STATUS__PENDING_GENERATIONS_PAGE", page)

    assert shown(table) == (code, 5, [_COLOURS[code]] * 2)


def test_each_finding_has_one_remedy_and_a_page_that_exists(table: BaseTable) -> None:
    for damage in (generation_gone, failing_job, failed_check, held):
        damage(table)

    health = Table.open(table.uri).doctor()

    assert {each.finding_id for each in health.findings} == {
        "generation-missing",
        "job-failures",
        "check-failed",
        "quarantined-generations",
    }
    assert all(each.remedy and each.risk for each in health.findings)
    assert all((Path(__file__).parents[3] / each.runbook).is_file() for each in health.findings)


def test_command_for_monitoring_finds_nothing_that_the_doctor_does_not(table: BaseTable) -> None:
    for damage in (generation_gone, manifest_version_gone, failing_job):
        damage(table)
    opened = Table.open(table.uri)

    quick, deep = opened.health(), opened.doctor()

    assert {each.identity for each in quick.findings} <= {each.identity for each in deep.findings}
    assert quick.level is deep.level


def test_quick_look_costs_the_same_however_much_a_region_holds(table: BaseTable) -> None:
    def calls() -> list[str]:
        store = FaultyStore(table.store)
        health = examine(OpenTable.of(BaseTable.open(table.uri, store=store)), deep=False)
        assert health.level is Level.OK
        return [call.operation for call in store.calls if str(region(table)) in call.path]

    few = calls()
    write_generations(table, [6], [7], [8], name="more")

    # The tail of the WAL is looked for from where the manifest says, so the number of probes may vary a little.
    assert len(calls()) <= len(few) + 2 <= 16


def test_damage_of_one_region_leaves_the_others_measured(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=2)
    write_generations(table, list(range(20)), name="new")
    sound, damaged = Table.open(table.uri).opened.manifests.region_ids()
    Vandal(table).garble_manifest(damaged)

    health = Table.open(table.uri).health()

    assert [(each.finding_id, each.region_id) for each in health.findings] == [("manifest-unreadable", damaged)]
    assert health.of_region(sound).value(Signal.PENDING_GENERATIONS) == 1

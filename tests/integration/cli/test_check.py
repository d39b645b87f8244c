"""`memwal status --check` on real tables: which signal, which code, which page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.holds import Hold, HoldStore
from memwal_core.storage.layout import manifest_path, quality_result_path
from memwal_core.testing.garbage import write_generations
from memwal_core.testing.tables import PEOPLE, make_people_table, people
from memwal_core.writer.table_writer import TableWriter


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 3], [4], name="new")
    return made


def check(table: BaseTable, **environment: str) -> tuple[int, dict[str, Mapping[str, Any]]]:
    result = CliRunner().invoke(app, ["status", table.uri, "--check", "--json"], env=environment)
    signals = json.loads(result.stdout)["signals"]
    return result.exit_code, {each["signal"]: each for each in signals}


def only_region(table: BaseTable):
    [region_id] = TableAdmin.open(table.uri).manifests.region_ids()
    return region_id


def test_healthy_table_ends_with_zero_and_shows_every_signal(table):
    code, signals = check(table)

    assert code == 0, signals
    assert signals["pending_generations"]["value"] == 2
    assert {each["level"] for each in signals.values()} == {"ok"}
    assert all((Path(__file__).parents[3] / each["runbook"]).is_file() for each in signals.values())


@pytest.mark.parametrize(("page", "code", "level"), [("9", 6, "warn"), ("2", 7, "page")])
def test_threshold_of_the_environment_decides_the_code(table, page, code, level):
    found, signals = check(
        table, MEMWAL_STATUS__PENDING_GENERATIONS_WARN="2", MEMWAL_STATUS__PENDING_GENERATIONS_PAGE=page
    )

    assert found == code
    assert signals["pending_generations"]["level"] == level
    assert str(only_region(table)) in signals["pending_generations"]["subject"]


def test_text_names_the_runbook(table):
    result = CliRunner().invoke(app, ["status", table.uri, "--check"], env={"COLUMNS": "300"})

    assert result.exit_code == 0
    assert "docs/runbooks/pending-generations.md" in result.stdout


def test_old_generation_and_old_wal_entry_are_measured_from_their_files(table):
    with TableWriter.open(table) as writer:
        writer.put(people(9))
    ages = {
        f"MEMWAL_STATUS__{name}_{level}_S": "0.0001"
        for name in ("OLDEST_UNMERGED", "WAL_LAG")
        for level in ("WARN", "PAGE")
    }

    code, signals = check(table, **ages)

    assert code == 7
    assert "generation 1" in signals["oldest_unmerged"]["subject"]
    assert "WAL entry 3" in signals["wal_lag"]["subject"]


def test_claims_of_the_last_hour_are_counted(table):
    for _ in range(3):
        with TableWriter.open(table) as writer:
            writer.put(people(9))

    _, signals = check(table)

    assert signals["epoch_changes"]["value"] == 3
    assert signals["epoch_changes"]["level"] == "warn"


def test_held_generation_warns(table):
    HoldStore(table.store).hold(Hold(only_region(table), 2, ("bad",), ""))

    code, signals = check(table)

    assert code == 6
    assert signals["held_generations"]["value"] == 1


def test_progress_ahead_of_a_region_pages(table):
    table.merge_upsert(PEOPLE.empty_table(), {only_region(table): 7})

    code, signals = check(table)

    assert (code, signals["progress_lost"]["level"]) == (7, "page")


def test_index_that_is_gone_while_regions_exist_pages(table):
    lance.write_dataset(people(1), table.uri, mode="overwrite")

    code, signals = check(table)

    assert (code, signals["progress_lost"]["level"]) == (7, "page")


def test_table_without_mem_wal_is_an_error_and_no_signal(tmp_path):
    lance.write_dataset(people(1), str(tmp_path / "plain"))

    result = CliRunner().invoke(app, ["status", str(tmp_path / "plain"), "--check"])

    assert isinstance(result.exception, InvalidRequestError)


def test_damaged_manifest_pages(table):
    region_id = only_region(table)
    newest = TableAdmin.open(table.uri).manifests.versions(region_id)[-1]
    (Path(table.uri) / manifest_path(region_id, newest)).write_bytes(b"\xff\xff")

    code, signals = check(table)

    assert (code, signals["corrupt_manifest"]["level"]) == (7, "page")


@pytest.mark.parametrize(("report", "level"), [(b'{"failed": 0, "version": 1}', "ok"), (b"no json", "page")])
def test_newest_report_of_the_checks_counts(table, report, level):
    table.store.put(quality_result_path("after"), report)

    assert check(table)[1]["check_failed"]["level"] == level


def test_index_that_lags_is_named(table):
    lance.dataset(table.uri).create_scalar_index("id", "BTREE", name="id_idx")
    TableAdmin.open(table.uri).merge()

    _, signals = check(table)

    assert signals["index_lag"]["value"] == 2
    assert "id_idx" in signals["index_lag"]["subject"]

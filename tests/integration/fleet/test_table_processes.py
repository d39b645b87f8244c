"""Files at which Lance ends the process: a fleet goes on, and says which table has them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memwal_core.fleet import Due, Fleet, FleetRequest
from memwal_core.fleet.report import FleetReport
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import FleetSettings
from testkit.tables.generations import GenerationTable, make_generation_table
from tests.integration.damage.test_forged_pages import forge

pytestmark = [pytest.mark.req("T6", "O1"), pytest.mark.slow]  # Every process takes a second to begin.

_IN_ONE_PROCESS = "import sys, tests.integration.fleet.test_table_processes as it; it.maintain_here(sys.argv[1])"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GenerationTable:
    return make_generation_table(str(tmp_path_factory.mktemp("model") / "model"), "ours")


def fleet_of(directory: Path) -> Registry:
    return Registry(
        tables=tuple(RegisteredTable(name=each.name, uri=str(each)) for each in sorted(directory.iterdir()))
    )


def maintain_here(directory: str) -> None:
    """Maintain all tables as an application of Spark does, whose driver does what is small."""
    fleet = Fleet(executors=lambda _: None, settings=FleetSettings(parallel=1))
    report = fleet.maintain_tables(fleet_of(Path(directory)), FleetRequest(due_only=False))
    for found in report.tables:
        sys.stdout.write(f"{found.table} {ends(report)[found.table]} {found.error}\n")


def as_on_spark(tables: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _IN_ONE_PROCESS, str(tables)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def tables(tmp_path: Path, model: GenerationTable) -> Path:
    directory = tmp_path / "tables"
    for name in ("attacked", "sound"):
        shutil.copytree(model.table.uri, directory / name)
    return directory


def forged_file(tables: Path, model: GenerationTable, where: str) -> Path:
    files = {
        "flushed MemTable": tables / "attacked" / model.directory() / "data",
        "base table": tables / "attacked" / "data",
    }[where]
    path = next(each for each in sorted(files.iterdir()) if each.suffix == ".lance")
    forge(path)
    return path


def ends(report: FleetReport) -> dict[str, str]:
    return {each.table: each.outcome.value if each.outcome else each.end.value for each in report.tables}


@pytest.mark.parametrize("where", ["flushed MemTable", pytest.param("base table", marks=pytest.mark.long)])
def test_file_that_ends_a_process_stops_the_cycle_of_its_table_only(
    tables: Path, model: GenerationTable, where: str
) -> None:
    path = forged_file(tables, model, where)
    fleet = Fleet(settings=FleetSettings(parallel=1))
    everything = FleetRequest(due_only=False)

    first = fleet.maintain_tables(fleet_of(tables), everything)

    assert ends(first) == {"attacked": "failed", "sound": "done"}
    [attacked, _] = first.tables
    assert attacked.error is not None
    assert (attacked.exit_code, attacked.error["facts"]["ended"]) == (5, "SIGABRT")  # type: ignore[index]
    assert "memwal doctor --deep" in str(attacked.error["next"])
    assert first.exit_code == 6

    shutil.rmtree(tables / "attacked" / "_mem_wal" / "_leases")  # As when those of the dead have ended.
    second = fleet.maintain_tables(fleet_of(tables), everything)
    if where == "flushed MemTable":
        assert ends(second)["attacked"] == "partial"
        assert path.name in str(second.tables[0].report)
    else:
        assert ends(second)["attacked"] == "failed"


def test_fleet_on_spark_that_died_works_on_that_table_apart_and_on_the_others(
    tables: Path, model: GenerationTable
) -> None:
    """Its first run is the control, too: without processes of their own, one table ends the work on all."""
    forged_file(tables, model, "base table")

    first = as_on_spark(tables)
    shutil.rmtree(tables / "attacked" / "_mem_wal" / "_leases")  # As when those of the dead have ended.
    second = as_on_spark(tables)

    assert (first.returncode, first.stdout) == (-signal.SIGABRT, "")
    assert second.returncode == 0
    attacked, sound = second.stdout.splitlines()
    assert attacked.startswith("attacked failed")
    assert "SIGABRT" in attacked
    assert "memwal doctor --deep" in attacked
    assert sound.startswith("sound done")


@pytest.mark.long
def test_service_over_a_table_with_a_forged_page_lives_and_names_it(
    tables: Path, model: GenerationTable, tmp_path: Path
) -> None:
    path = forged_file(tables, model, "flushed MemTable")
    registry = tmp_path / "tables.toml"
    registry.write_text(
        "".join(f'[[tables]]\nname = "{name}"\nuri = "{tables / name}"\n' for name in ("attacked", "sound"))
    )
    options = ["maintain", "--registry", str(registry), "--every", "1s", "--now", "--json"]
    command = [sys.executable, "-c", "from memwal_core.cli import main; main()", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        try:
            assert service.stdout is not None
            lines = map(json.loads, service.stdout)
            died = next(line for line in lines if line["table"] == "attacked")
            assert died["error"]["facts"]["ended"] == "SIGABRT"
            assert "memwal doctor --deep" in died["error"]["next"]
            assert next(line for line in lines if line["table"] == "sound")["outcome"] in {"done", "nothing_to_do"}

            shutil.rmtree(tables / "attacked" / "_mem_wal" / "_leases")  # As when those of the dead have ended.
            parked = next(line for line in lines if line["table"] == "attacked" and line["outcome"] == "partial")
            assert path.name in json.dumps(parked)
            assert service.poll() is None
        finally:
            service.terminate()
        service.communicate(timeout=120)
    assert service.returncode == 0


def test_survey_that_plans_outlives_a_table_that_ends_its_planner(tables: Path, model: GenerationTable) -> None:
    """A plan counts the rows that a flushed MemTable hides, which Lance decodes."""
    forged_file(tables, model, "flushed MemTable")

    found = dict(Fleet(settings=FleetSettings(parallel=1)).survey(fleet_of(tables).tables, plan=True))

    attacked, sound = found["attacked"], found["sound"]
    assert isinstance(sound, Due)
    assert sound.is_due
    # It can be opened, so that its history can say which of its jobs keep failing.
    assert isinstance(attacked, Due)
    assert (attacked.is_due, "end the process that reads them" in attacked.why) == (True, True)

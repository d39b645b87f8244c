"""Alert rules and dashboard in a real Prometheus, which scrapes a real watch and a real service."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.stack.stack import free_port
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.processes.spark_cluster import until
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MAIN = [sys.executable, "-c", "from memwal_core.cli import main; main()"]


def test_every_rule_fires_when_it_must_and_not_before() -> None:
    judged = subprocess.run(["promtool", "test", "rules", DEPLOY / "alerts-test.yaml"], capture_output=True, text=True)
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY / "alerts-test.yaml").read_text())["tests"]
    fired = {each["alertname"] for test in tests for each in test.get("alert_rule_test", ()) if each["exp_alerts"]}

    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert fired == {rule["alert"] for rule in rules}


def test_rule_that_waits_for_something_else_is_noticed(tmp_path: Path) -> None:
    rules = (DEPLOY / "alerts.yaml").read_text()
    (tmp_path / "alerts.yaml").write_text(rules.replace("memwal_table_level >= 2", "memwal_table_level >= 3"))
    (tmp_path / "tests.yaml").write_bytes((DEPLOY / "alerts-test.yaml").read_bytes())
    judged = subprocess.run(["promtool", "test", "rules", tmp_path / "tests.yaml"], capture_output=True, check=False)
    assert judged.returncode == 1


def test_configuration_of_the_page_is_understood(tmp_path: Path) -> None:
    [text] = re.findall(
        r"^```yaml\n(# prometheus.yaml\n.*?)^```$", (DEPLOY.parent / "docs" / "watching.md").read_text(), re.M | re.S
    )
    (tmp_path / "prometheus.yaml").write_text(text)
    shutil.copy(DEPLOY / "alerts.yaml", tmp_path)
    command = ["promtool", "check", "config", tmp_path / "prometheus.yaml"]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)

    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "1 rule files found" in judged.stdout


class Asked:
    """A Prometheus that scrapes the watch and the service."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._address}/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as told:
            return json.loads(told.read())["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self.ask("query", query=expression)["result"])

    def is_ready(self) -> bool:
        """Whether both processes have ended a round that was scraped, and the rules were evaluated since."""
        try:
            rounds = self.query("memwal_watch_round_timestamp_seconds"), self.query("memwal_maintain_table_seconds")
            return all(rounds) and bool(self.alerts())
        except OSError:
            return False

    def alerts(self) -> set[tuple[str, str]]:
        """Return which alerts are about which table, those among them that wait for their time."""
        found = self.ask("alerts")["alerts"]
        return {(each["labels"]["alertname"], each["labels"].get("memwal_table", "")) for each in found}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Three tables: a sound one, one with a damaged manifest, and an address where nothing is."""
    root = tmp_path_factory.mktemp("fleet")
    names = ("sound", "hurt", "gone")
    for name in names[:2]:
        made = make_people_table(str(root / name), rows=people(1, 2), buckets=1)
        write_generations(made, [1, 3], name="new")
        if name == "hurt":
            Vandal(made).garble_manifest(Table.open(made.uri).opened.manifests.region_ids()[0])
    registry = root / "tables.toml"
    registry.write_text("".join(f'[[tables]]\nname = "{name}"\nuri = "{root / name}"\n' for name in names))
    watch, service, port = free_port(), free_port(), free_port()
    scraped = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]}
        for name, own in (("memwal-watch", watch), ("memwal-maintain", service))
    ]
    own = {"global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"}, "scrape_configs": scraped}
    (root / "prometheus.yml").write_text(yaml.safe_dump({**own, "rule_files": [str(DEPLOY / "alerts.yaml")]}))
    with ExitStack() as ends:
        for arguments in (
            ["watch", "--registry", str(registry), "--every", "2", "--port", str(watch)],
            ["maintain", "--registry", str(registry), "--every", "2s", "--port", str(service)],
        ):
            _started(ends, [*MAIN, *arguments], root)
        options = [f"--config.file={root / 'prometheus.yml'}", f"--storage.tsdb.path={root / 'data'}"]
        _started(ends, ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"], root)
        asked = Asked(port)
        until(asked.is_ready)
        yield asked


def _started(ends: ExitStack, command: list[str], root: Path) -> None:
    with (root / f"{command[3] if command[0] != 'prometheus' else 'prometheus'}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=DEPLOY.parent)
    ends.callback(process.wait, 120)
    ends.callback(process.send_signal, signal.SIGTERM)


def test_alerts_are_about_the_damaged_table_and_the_missing_one_alone(prometheus: Asked) -> None:
    expected = {
        ("MemwalCyclesFail", "hurt"),
        ("MemwalCyclesFail", "gone"),
        ("MemwalOperatorMustActNow", "hurt"),
        ("MemwalFinding", "hurt"),
        ("MemwalTableNotExamined", "gone"),
    }

    def are_told_alone() -> bool:
        """Look at one moment: a scrape that comes late, on a busy machine, takes all series with it for a while."""
        alerts = prometheus.alerts()
        return expected <= alerts and {table for _, table in alerts} == {"hurt", "gone"}

    until(are_told_alone)
    rules = prometheus.ask("rules")["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} == {"ok"}


def test_every_query_of_the_dashboard_finds_what_it_shows(prometheus: Asked) -> None:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    answers = {each: prometheus.query(each.replace("$table", ".*")) for each in queries}

    assert [each for each, found in answers.items() if not found] == []
    assert {each["metric"]["memwal_table"] for each in prometheus.query("memwal_table_examined")} == {
        "sound",
        "hurt",
        "gone",
    }
    assert len(prometheus.query("memwal_table_level == 2")) == 1

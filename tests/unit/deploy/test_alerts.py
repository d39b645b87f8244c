"""Alert rules and dashboard name only what the watch and the service emit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwal_core.cli.maintain import exposition as service
from memwal_core.cli.watch.exposition import METRICS, SIGNAL, TABLE
from memwal_core.observe.signals import Signal

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
LABELS = {TABLE, SIGNAL, "finding", "level", "runbook"}
NAME = re.compile(r"\bmemwal_[a-z_]+\b")


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel["targets"])
    yield from (each["query"]["query"] for each in dashboard()["templating"]["list"] if each["type"] == "query")


def problem_with(expression: str) -> str:
    """Return what an expression names that neither the watch nor the service emits; empty if there is nothing."""
    unknown = set(NAME.findall(expression)) - set(METRICS) - set(service.METRICS) - LABELS
    labels = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression)) - LABELS
    named = {name for text in re.findall(rf"{SIGNAL}=~?\"([^\"]+)\"", expression) for name in text.split("|")}
    signals = named - {signal.value for signal in Signal}
    return ", ".join(sorted(unknown | labels | signals))


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_expression_names_only_what_the_watch_emits(expression: str) -> None:
    assert NAME.search(expression)
    assert problem_with(expression) == ""


@pytest.mark.parametrize(
    "expression",
    ["memwal_table_health > 1", 'memwal_finding{severity="page"}', 'memwal_signal_value{memwal_signal="garbage|lag"}'],
)
def test_wrong_expression_would_be_noticed(expression: str) -> None:
    assert problem_with(expression) != ""


def test_every_alert_says_whom_it_calls_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["for"]
        assert set(rule["annotations"]) == {"summary", "description"}
        labels = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
        assert set(labels) <= LABELS


def test_commands_of_alerts_take_the_address_of_a_table_and_not_its_name_in_the_registry() -> None:
    """Whoever was woken copied `memwal status orders --check --deep`, which looks for a directory of that name."""
    texts = [rule["annotations"]["description"] for rule in rules()]
    commands = [command for text in texts for command in re.findall(r"`memwal ([^`]+)`", text)]

    assert [command for command in commands if "$labels" in command] == []
    for text in texts:
        assert ("URI" in text) == ("URI is the address of {{ $labels.memwal_table }} in the registry" in text)


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    places = [
        (column, row)
        for panel in panels
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(places)
    assert max(column for column, _ in places) < 24


def test_route_of_the_page_groups_by_a_label_of_the_rules_and_leads_every_page_to_a_person() -> None:
    text = (DEPLOY.parent / "docs" / "watching.md").read_text()
    [block] = re.findall(r"```yaml\n# alertmanager.yaml\n(.*?)```", text, re.S)
    route = yaml.safe_load(block)["route"]
    [urgent] = route["routes"]

    assert route["group_by"] == [TABLE]
    assert urgent["matchers"] == ['severity="page"']
    assert {rule["labels"]["severity"] for rule in rules()} == {"page", "ticket"}
    assert {urgent["receiver"], route["receiver"]} == {each["name"] for each in yaml.safe_load(block)["receivers"]}

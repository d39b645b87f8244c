"""The service as it is deployed: its commands parse, its endings fit, its page names its metrics."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import typer
import yaml

from memwal_core.cli.app import app
from memwal_core.cli.maintain.exposition import METRICS

ROOT = Path(__file__).resolve().parents[3]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "deploy" / "memwal-maintain.service")
    return parser


def commands() -> dict[str, list[str]]:
    compose = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]["maintain"]
    page = (ROOT / "docs" / "service.md").read_text()
    return {
        "unit": unit()["Service"]["ExecStart"].split()[1:],
        "compose": compose["command"][1:],
        "page": re.findall(r"^memwal (maintain .*)$", page, re.M)[0].split(),
    }


@pytest.mark.parametrize("name", ["unit", "compose", "page"])
def test_command_that_is_deployed_is_understood(name: str) -> None:
    group = typer.main.get_command(app)
    command, *arguments = commands()[name]

    parsed = group.commands[command].make_context(command, arguments)  # type: ignore[attr-defined]

    assert (parsed.params["every"], parsed.params["registry"]) == (60.0, "/etc/memwal/tables.toml")
    stop_s = {"unit": unit()["Service"]["TimeoutStopSec"], "compose": 90}.get(name, 90)
    assert float(stop_s) > parsed.params["grace"] + 10


def test_page_names_every_metric() -> None:
    page = (ROOT / "docs" / "service.md").read_text()

    assert set(re.findall(r"^\| `(memwal_maintain_\w+)`", page, re.M)) == set(METRICS)

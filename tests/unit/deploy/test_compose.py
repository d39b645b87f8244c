"""The compose file: pinned images, health checks, no secrets, and the same versions everywhere.

``make compose-check`` compares it with the compose specification, which needs a tool from npm.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from memwal_core.tasks.registry import parse_registry

ROOT = Path(__file__).parents[3]
SECRET = re.compile(r"PASSWORD|SECRET|FERNET|ACCESS_KEY|JWT")
ROLES = {
    "postgres", "s3", "airflow-init", "airflow-api", "airflow-scheduler", "airflow-dag-processor",
    "airflow-triggerer", "spark-master", "spark-worker", "otel-collector", "prometheus",
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text())


def test_all_roles_of_the_platform_are_there(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == ROLES
    assert compose["services"]["spark-worker"]["deploy"]["replicas"] == 2


def test_every_image_is_pinned_to_a_version(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        _, _, tag = service["image"].rpartition(":")
        assert re.search(r"\d+\.\d+|\d{4}-\d{2}-\d{2}", tag), name
    base = re.search(r"^FROM \S+:(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    assert re.match(r"3\.11\.\d+-slim-", base[1])


def test_every_service_that_stays_has_a_health_check(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if service.get("restart") == "no":
            continue
        check = service["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL"), name
        assert {"interval", "timeout", "retries"} <= set(check)


def test_dependencies_exist_and_wait_for_health_where_there_is_a_check(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, needed in service.get("depends_on", {}).items():
            assert name in services
            if needed["condition"] == "service_healthy":
                assert "healthcheck" in services[name]
            if needed["condition"] == "service_completed_successfully":
                assert services[name]["restart"] == "no"


def test_no_secret_has_a_default_or_is_written_down(compose: dict[str, Any]) -> None:
    seen = 0
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name) and not name.endswith("_FILE"):
                assert re.fullmatch(r"\$\{[A-Z0-9_]+:\?[^}]+\}", value), name
                seen += 1
    assert seen > 5
    text = (ROOT / "docker-compose.yaml").read_text()
    assert not re.search(r"\$\{[A-Z0-9_]+:?-", text)
    for variable in set(re.findall(r"\$\{([A-Z0-9_]+)", text)):
        assert variable in (ROOT / "docs" / "operating.md").read_text(), variable


def test_ports_are_published_on_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_mounted_files_and_named_volumes_exist(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith("./") else source in compose["volumes"]


def test_files_that_the_image_copies_are_in_its_context() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    for name in " ".join(copied).split():
        assert name in allowed
        assert (ROOT / name).exists()


def test_registry_and_pools_that_are_deployed_are_understood() -> None:
    text = (ROOT / "deploy" / "tables.toml").read_text()
    assert parse_registry(text, "tables.toml").tables == ()
    example = "\n".join(line.removeprefix("# ") for line in text.splitlines()[1:])
    assert [table.name for table in parse_registry(example, "tables.toml").tables] == ["orders"]
    pools = json.loads((ROOT / "dags" / "pools.json").read_text())
    assert all(pool["slots"] > 0 for pool in pools.values())


def test_collector_offers_metrics_where_prometheus_looks_for_them() -> None:
    collector = yaml.safe_load((ROOT / "deploy" / "otel-collector.yaml").read_text())
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())

    port = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    [target] = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"otel-collector:{port}"


def test_version_of_the_image_is_that_of_the_package(compose: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert compose["services"]["airflow-api"]["image"] == f"memwal-core:{version}"

"""The compose file: pinned images, health checks, no secrets, and the same versions everywhere.

``make compose-check`` compares it with the compose specification, which needs a tool from npm.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from memwal_core.registry import parse_registry

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


def test_passwords_come_from_a_secret_and_are_kept_where_airflow_may_write_them(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    service = compose["services"]["airflow-api"]
    home = re.search(r"AIRFLOW_HOME=(\S+)", (ROOT / "Dockerfile").read_text())
    assert home is not None
    kept = Path(service["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    assert kept.parent == Path(home[1])
    [secret] = service["secrets"]
    assert [name for name, each in compose["services"].items() if each.get("secrets")] == ["airflow-api"]

    shell, flags, text = service["command"]
    before, _, server = text.partition("exec ")
    assert server.startswith("airflow api-server ")
    (tmp_path / "secret").write_text('{"admin": "word"}')
    here = before.replace(f"/run/secrets/{secret}", str(tmp_path / "secret")).replace(str(kept), str(tmp_path / "kept"))
    subprocess.run([shell, flags, here], check=True)

    assert json.loads((tmp_path / "kept").read_text()) == {"admin": "word"}
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600


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


def test_wheel_holds_the_library_alone_and_is_known_to_airflow() -> None:
    files = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_selected_project_files()}

    assert {
        "memwal_core/airflow/__init__.py",
        "memwal_core/airflow/operators/work.py",
        "memwal_core/py.typed",
        "memwal_core/table.py",
    } <= files
    assert not [name for name in files if name.partition("/")[0] != "memwal_core"]
    [provider] = entry_points(group="apache_airflow_provider", name="provider_info").select(
        module="memwal_core.airflow"
    )
    assert f"{provider.module.replace('.', '/')}/__init__.py" in files
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    build = next(number for number, line in enumerate(lines) if line.endswith("--no-build-isolation ."))
    assert {"COPY memwal_core memwal_core", "COPY plugins plugins"} <= set(lines[:build])


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


def test_tasks_and_jobs_send_metrics_and_traces_to_the_collector_over_http(compose: dict[str, Any]) -> None:
    for name in ("airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
        environment = compose["services"][name]["environment"]
        assert environment["AIRFLOW__METRICS__OTEL_ON"] == environment["AIRFLOW__TRACES__OTEL_ON"] == "True"
        # Airflow's exporter of traces speaks gRPC unless it is named; this port is for HTTP.
        assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(":4318")
        assert environment["OTEL_TRACES_EXPORTER"] == "otlp_proto_http"
        assert environment["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"


def test_version_of_the_image_is_that_of_the_package(compose: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert compose["services"]["airflow-api"]["image"] == f"memwal-core:{version}"

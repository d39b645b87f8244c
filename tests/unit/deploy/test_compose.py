"""The compose file: images by digest, users without rights, secrets as files where they are needed, health checks.

``make compose-check`` compares it with the compose specification, which needs a tool from npm.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pyspark
import pytest
import yaml
from airflow.configuration import conf
from cryptography.fernet import Fernet
from hatchling.builders.wheel import WheelBuilder
from sqlalchemy.engine import make_url

import memwal_core
from memwal_core.registry import parse_registry
from testkit.s3_server import s3_server

ROOT = Path(__file__).parents[3]
SECRET = re.compile(r"PASSWORD|SECRET|FERNET|KEY|JWT|CONN|TOKEN")
DIGEST = re.compile(r"^[\w./-]+:[\w.-]*(\d+\.\d+|\d{4}-\d{2}-\d{2})[\w.-]*@sha256:[0-9a-f]{64}$")
ROLES = {
    "postgres", "s3", "s3-setup", "example-table", "airflow-init", "airflow-api", "airflow-scheduler",
    "airflow-dag-processor", "airflow-triggerer", "spark-master", "spark-worker", "otel-collector", "prometheus",
    "maintain", "watch",
}  # fmt: skip
# Who may read what; everything else is refused. Jobs run in the scheduler and the workers.
SECRETS = {
    "postgres": {"postgres_password"},
    "s3": {"s3_config"},
    "s3-setup": {"s3_admin_credentials", "s3_credentials"},
    "example-table": {"s3_credentials"},
    "airflow-init": {"airflow_database"},
    "airflow-api": {
        "airflow_database", "airflow_fernet_key", "airflow_jwt_secret", "airflow_secret_key", "airflow_passwords",
        "s3_credentials",
    },
    "airflow-scheduler": {"airflow_database", "airflow_jwt_secret", "s3_credentials", "spark_defaults"},
    "airflow-dag-processor": {"airflow_database", "airflow_fernet_key"},
    "airflow-triggerer": {"airflow_database", "airflow_fernet_key", "s3_credentials"},
    "spark-master": {"spark_defaults"},
    "spark-worker": {"s3_credentials", "spark_defaults"},
    "maintain": {"s3_credentials"},
    "watch": {"s3_credentials"},
}  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text())


def test_all_roles_of_the_platform_are_there(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == ROLES
    assert compose["services"]["spark-worker"]["deploy"]["replicas"] == 2


def test_every_image_is_built_here_or_named_by_a_digest(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service.get("build") == "." or DIGEST.match(service["image"]), name
    dockerfile = (ROOT / "Dockerfile").read_text()
    base = re.search(r"^ARG BASE=(\S+)$", dockerfile, re.MULTILINE)
    assert base is not None
    assert DIGEST.match(base[1])
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"${BASE}"}
    assert len(re.findall(r"^FROM ", dockerfile, re.MULTILINE)) == 3  # what builds stays behind


def test_no_container_is_root_has_capabilities_or_writes_its_own_files(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        opened = {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "volumes_from"} & set(service)
        assert not opened, name
        assert "network_mode" not in service, name
        for volume in service.get("volumes", []):
            assert volume.endswith(":ro") or not volume.startswith((".", "/")) or volume == "/opt/scratch", name
    assert re.search(r"^USER 50000:50000$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_where_containers_write_is_a_tmpfs_or_a_volume_that_the_image_gives_to_its_user(
    compose: dict[str, Any],
) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    owned = re.search(r"chown airflow:airflow (.+)$", dockerfile, re.MULTILINE)
    assert owned is not None
    for name, service in compose["services"].items():
        if "build" not in service:
            continue
        targets = {volume.rpartition(":")[2] for volume in service.get("volumes", []) if not volume.endswith(":ro")}
        assert targets <= set(owned[1].split()), name
        assert {mount.partition(":")[0] for mount in service["tmpfs"]} == {"/tmp", "/opt/airflow"}


def test_java_may_map_the_libraries_that_it_unpacks(compose: dict[str, Any]) -> None:
    """Docker mounts a tmpfs with ``noexec``; then no driver can tell executors where a shuffle's blocks are."""
    for name, service in compose["services"].items():
        if "build" in service:
            [options] = [mount.partition(":")[2] for mount in service["tmpfs"] if mount.startswith("/tmp:")]
            assert "exec" in options.split(","), name


def test_every_service_that_stays_has_a_health_check(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if service.get("restart") == "no":
            continue
        if name == "otel-collector":  # its image has nothing to ask with; `up --wait` refuses a disabled check
            assert "healthcheck" not in service
            continue
        check = service["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL"), name
        assert {"interval", "timeout", "retries"} <= set(check)


def test_health_check_believes_only_an_answer_of_200_with_its_text(compose: dict[str, Any]) -> None:
    asked = {
        name: service["healthcheck"]["test"][2:]
        for name, service in compose["services"].items()
        if "is_up.sh" in str(service.get("healthcheck"))
    }
    assert len(asked) == 8
    health = {part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor", "triggerer")}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # As Airflow writes JSON.
            body = json.dumps(health, separators=(",", ":")).encode() if "monitor" in self.path else b"ok"
            self.send_response(404 if self.path == "/missing" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    def is_up(port: int, path: str, *text: str) -> bool:
        program = [ROOT / "deploy" / "is_up.sh", "127.0.0.1", str(port), path, *text]
        return subprocess.run(program, check=False, capture_output=True).returncode == 0

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        for name, (_, _, path, *text) in asked.items():
            assert is_up(port, path, *text), name
        assert not is_up(port, "/missing")
        for name in ("airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
            _, _, path, text = asked[name]
            part = name.removeprefix("airflow-").replace("-", "_")
            health[part]["status"] = "unhealthy"
            assert not is_up(port, path, text), name
            health[part]["status"] = "healthy"
        server.shutdown()
    assert not is_up(port, "/")


def test_every_service_has_limits_and_what_writes_has_time_to_stop(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        limits = service["deploy"]["resources"]["limits"]
        assert re.fullmatch(r"[1-9]g", limits["memory"]), name
        assert limits["pids"] >= 512, name
    for name in ("postgres", "s3", "airflow-scheduler", "airflow-triggerer", "spark-worker", "maintain"):
        assert int(compose["services"][name]["stop_grace_period"].removesuffix("s")) > 10, name
    worker = compose["services"]["spark-worker"]
    heap = worker["command"][worker["command"].index("--memory") + 1]
    assert int(heap.removesuffix("g")) < int(worker["deploy"]["resources"]["limits"]["memory"].removesuffix("g"))


def test_an_example_that_fails_keeps_nothing_from_starting(compose: dict[str, Any], tmp_path: Path) -> None:
    """The scheduler waits for it: without that, `up --wait` would take a container that ends for a failure."""
    needed = compose["services"]["airflow-scheduler"]["depends_on"]
    assert needed["example-table"] == {"condition": "service_completed_successfully"}
    assert needed["airflow-api"] == {"condition": "service_healthy"}  # or its first tasks reach nobody
    shell, flags, text = compose["services"]["example-table"]["command"]
    program = tmp_path / "example_table.sh"
    text = text.replace("/opt/memwal/deploy/example_table.sh", str(program))
    shipped = (ROOT / "deploy" / "registry" / "tables.toml").read_text()

    def said(registry: str, code: int) -> list[str]:
        (tmp_path / "tables.toml").write_text(registry)
        program.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
        program.chmod(0o755)
        here = text.replace("/etc/memwal", str(tmp_path))
        return subprocess.run([shell, flags, here], check=True, capture_output=True, text=True).stdout.splitlines()

    assert said(shipped, 0) == ["s3://lake/orders.lance"]
    assert said(shipped, 4) == ["s3://lake/orders.lance", "the example table was not made"]
    assert said("exclude = []", 0) == []


def test_dependencies_exist_and_wait_for_health_where_there_is_a_check(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, needed in service.get("depends_on", {}).items():
            assert name in services
            if needed["condition"] == "service_healthy":
                assert "healthcheck" in services[name]
            if needed["condition"] == "service_completed_successfully":
                assert services[name]["restart"] == "no"


def test_each_service_has_the_secrets_that_it_needs_as_files(compose: dict[str, Any]) -> None:
    found = {
        name: {each if isinstance(each, str) else each["source"] for each in service["secrets"]}
        for name, service in compose["services"].items()
        if service.get("secrets")
    }

    assert found == SECRETS
    assert set(compose["secrets"]) == set().union(*SECRETS.values())


def test_no_environment_holds_a_secret(compose: dict[str, Any]) -> None:
    """A job inherits the environment of its worker, and everybody on the machine may ask Docker for it."""
    files = 0
    for name, service in compose["services"].items():
        # Other ways by which a value gets into an environment, or into what everybody may ask Docker for.
        assert not {"env_file", "configs", "labels", "annotations", "credential_spec"} & set(service), name
        for variable, value in service.get("environment", {}).items():
            if not SECRET.search(variable) or variable == "AIRFLOW_CONN_SPARK_DEFAULT":
                continue
            if variable in (
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE",
                "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
            ):
                continue
            secret = re.fullmatch(r"(?:sed -z 's/\\n//g' )?/run/secrets/(\w+)", value)
            assert secret, (name, variable)
            assert secret[1] in SECRETS[name], (name, variable)
            files += 1
    assert files > 10
    assert "password" not in json.loads(
        compose["services"]["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]
    )
    assert "${" not in (ROOT / "docker-compose.yaml").read_text()


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``deploy/make_secrets.sh`` makes it."""
    folder = tmp_path_factory.mktemp("deploy")
    for name in ("make_secrets.sh", "spark-defaults.conf"):
        shutil.copy(ROOT / "deploy" / name, folder)
    subprocess.run([folder / "make_secrets.sh"], check=True, capture_output=True)
    return folder / "secrets"


def test_airflow_reads_each_of_its_secrets_by_a_command(
    compose: dict[str, Any], secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the end of a line that a command prints, and then connects to a database of another name."""
    services = compose["services"].values()
    commands = {
        name: value for service in services for name, value in service.get("environment", {}).items() if "_CMD" in name
    }

    assert len(commands) == 4
    for name, command in commands.items():
        file = Path(shlex.split(command)[-1]).name
        monkeypatch.delenv(name.removesuffix("_CMD"), raising=False)
        monkeypatch.setenv(name, command.replace("/run/secrets", str(secrets)))
        _, section, key = name.removesuffix("_CMD").lower().split("__")
        assert conf.get(section, key) == (secrets / file).read_text().strip()


def test_script_makes_each_secret_once_and_keeps_it(compose: dict[str, Any], secrets: Path) -> None:
    names = {secret["file"].removeprefix("./deploy/secrets/") for secret in compose["secrets"].values()}
    first = {path.name: path.read_text() for path in secrets.iterdir()}
    (secrets / "airflow_jwt_secret").unlink()
    said = subprocess.run([secrets.parent / "make_secrets.sh"], check=True, capture_output=True, text=True).stdout
    second = {path.name: path.read_text() for path in secrets.iterdir()}

    assert set(first) == set(second) == names
    assert {name for name in names if first[name] != second[name]} == {"airflow_jwt_secret"}
    assert len(set(first.values())) == len(first)
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert not [name for name, text in second.items() if text.strip() in said]
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_secrets_have_the_forms_that_their_readers_understand(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Fernet((secrets / "airflow_fernet_key").read_bytes().strip())
    url = make_url((secrets / "airflow_database").read_text().strip())
    assert url.password == (secrets / "postgres_password").read_text().strip()
    assert set(json.loads((secrets / "airflow_passwords").read_text())) == {"admin"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(secrets / "s3_credentials"))
    found = boto3.Session().get_credentials()
    assert found is not None
    assert (len(found.access_key), len(found.secret_key)) == (20, 40)
    spark = dict(line.split() for line in (secrets / "spark-defaults.conf").read_text().splitlines() if line[0] != "#")
    assert spark["spark.authenticate"] == spark["spark.network.crypto.enabled"] == "true"
    assert spark["spark.driver.bindAddress"] == "0.0.0.0"  # noqa: S104 - executors reach one of the scheduler's networks
    assert len(spark["spark.authenticate.secret"]) == 64


def credentials(secrets: Path, name: str) -> tuple[str, str]:
    """Return key and secret of a file as Amazon's tools read it."""
    key, secret = re.findall(r"= (\w+)", (secrets / name).read_text())
    return key, secret


def test_s3_server_knows_an_administrator_and_a_key_for_one_bucket(secrets: Path) -> None:
    known = {
        each["name"]: (
            [(pair["accessKey"], pair["secretKey"]) for pair in each["credentials"]],
            each["actions"],
        )
        for each in json.loads((secrets / "s3_config").read_text())["identities"]
    }

    assert known == {
        "admin": ([credentials(secrets, "s3_admin_credentials")], ["Admin"]),
        "lake": ([credentials(secrets, "s3_credentials")], ["Read:lake", "Write:lake", "List:lake"]),
    }


def test_policy_for_a_bucket_names_each_right_and_that_bucket_alone() -> None:
    policy = json.loads((ROOT / "deploy" / "s3-policy.json").read_text())
    for statement in policy["Statement"]:
        assert all(action.startswith("s3:") and "*" not in action for action in statement["Action"])
        assert all(resource in ("arn:aws:s3:::lake", "arn:aws:s3:::lake/*") for resource in statement["Resource"])


def test_set_up_of_the_store_makes_the_bucket_once_and_ends_where_two_writes_win(
    compose: dict[str, Any], secrets: Path, tmp_path: Path
) -> None:
    """Against a real server; the race is tried with a program in its place that fails."""
    shell, flags, text = compose["services"]["s3-setup"]["command"]
    text = text.replace("/opt/memwal", str(ROOT)).replace("/run/secrets", str(secrets))

    def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        path = f"{environment.get('PATH', '')}{Path(sys.executable).parent}:/usr/bin:/bin"
        return subprocess.run(
            [shell, flags, text], env=environment | {"PATH": path}, capture_output=True, text=True, check=False
        )

    with s3_server() as server:
        environment = {
            "AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_SHARED_CREDENTIALS_FILE": str(secrets / "s3_credentials"),
        }  # fmt: skip
        for _ in range(2):
            done = run(environment)
            assert done.returncode == 0, done.stderr
            assert "one won each time" in done.stdout
        (tmp_path / "memwal").write_text('#!/bin/sh\n[ "$*" = "storage probe s3://lake" ] && exit 2\n')
        (tmp_path / "memwal").chmod(0o755)
        assert run(environment | {"PATH": f"{tmp_path}:"}).returncode == 2


def test_passwords_come_from_a_secret_and_are_kept_where_airflow_may_write_them(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    service = compose["services"]["airflow-api"]
    home = re.search(r"AIRFLOW_HOME=(\S+)", (ROOT / "Dockerfile").read_text())
    assert home is not None
    kept = Path(service["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    assert kept.parent == Path(home[1])
    secret = "airflow_passwords"

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
            if source == volume:
                continue  # has no name and ends with its container
            assert (ROOT / source).exists() if source.startswith("./") else source in compose["volumes"]
            # A file that is mounted alone stays what it was when an editor puts a new one in its place.
            assert not volume.startswith("./") or "tables.toml" not in volume


def test_files_that_the_image_copies_are_in_its_context() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    names = set(" ".join(copied).split())
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in names:
        assert name in allowed
        assert (ROOT / name).exists()
    # The package is built in the image, where the wheel's own files have to be as well.
    for name in packed["force-include"]:
        assert any(Path(name).is_relative_to(each) for each in names), name


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
    build = next(number for number, line in enumerate(lines) if line.endswith("--require-build-hashes ."))
    assert {"COPY pyproject.toml README.md LICENSE ./", "COPY memwal_core memwal_core"} <= set(lines[:build])


def test_registry_and_pools_that_are_deployed_are_understood() -> None:
    text = (ROOT / "deploy" / "registry" / "tables.toml").read_text()
    assert [table.name for table in parse_registry(text, "tables.toml").tables] == ["orders"]
    commented = "\n".join(line.removeprefix("# ") for line in text.splitlines()[4:])
    assert [source.name for source in parse_registry(commented, "tables.toml").sources] == ["landing"]
    pools = json.loads((ROOT / "dags" / "pools.json").read_text())
    assert all(pool["slots"] > 0 for pool in pools.values())


def test_what_the_image_lacks_of_spark_is_what_spark_has() -> None:
    """A newer Spark may name its parts otherwise; then they would stay, or the image would not build."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    removed = re.search(r"cd pyspark/jars \\\n +&& rm -r (.+)$", dockerfile, re.MULTILINE)
    assert removed is not None
    home = Path(pyspark.__file__).parent
    for pattern in removed[1].split():
        assert list((home / "jars").glob(pattern)), pattern
    assert (home / "examples").is_dir()


def test_example_table_is_made_once_and_waits_for_a_merge(tmp_path: Path) -> None:
    uri = str(tmp_path / "orders.lance")
    for _ in range(2):
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        subprocess.run([ROOT / "deploy" / "example_table.sh", uri], env=environment, check=True, capture_output=True)

    table = memwal_core.open(uri)
    assert table.count() == 1000
    assert table.base.dataset().count_rows() == 0


def test_collector_offers_metrics_where_prometheus_looks_for_them() -> None:
    collector = yaml.safe_load((ROOT / "deploy" / "otel-collector.yaml").read_text())
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text())

    port = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    [target] = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"otel-collector:{port}"


def test_tasks_and_jobs_send_metrics_and_traces_to_the_collector_over_http(compose: dict[str, Any]) -> None:
    for name in ("airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
        environment = compose["services"][name]["environment"]
        assert environment["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] == "False"
        assert environment["AIRFLOW__METRICS__OTEL_ON"] == environment["AIRFLOW__TRACES__OTEL_ON"] == "True"
        # Airflow's exporter of traces speaks gRPC unless it is named; this port is for HTTP.
        assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(":4318")
        assert environment["OTEL_TRACES_EXPORTER"] == "otlp_proto_http"
        assert environment["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
        # Or tasks that defer while the collector is away may keep their slots for ever.
        assert environment["OTEL_EXPORTER_OTLP_TIMEOUT"] == "1"


def test_version_of_the_image_is_that_of_the_package(compose: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert compose["services"]["airflow-api"]["image"] == f"memwal-core:{version}"

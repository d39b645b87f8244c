"""What a Spark job is handed: its document and the options of its object store, and none of Airflow's secrets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from memwal_core.airflow.operators.spark import inherited
from memwal_core.airflow.operators.work import LeasedWork

pytestmark = [pytest.mark.airflow]

REGISTRY = """
[[tables]]
name = "people"
uri = "{uri}"
connection = "lake"

[[tables]]
name = "open"
uri = "{uri}-open"
"""
SECRET = "the-secret-key-of-the-store"
APPLICATION = """
import json, os, sys
from pathlib import Path
Path({target!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
"""
CONTEXT: Any = {
    "dag": SimpleNamespace(dag_id="memwal_merge"),
    "run_id": "manual__1",
    "dag_run": SimpleNamespace(start_date=None),
}


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the application says what it was handed."""
    registry = tmp_path / "tables.toml"
    registry.write_text(REGISTRY.format(uri=tmp_path / "people.lance"))
    lake = {"conn_type": "lance", "login": "key", "password": SECRET, "extra": {"aws_region": "eu-1"}}
    monkeypatch.setenv("MAINTENANCE_TABLES", str(registry))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "airflow-s-fernet-key")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://airflow:password@db")
    monkeypatch.setenv("VAULT_TOKEN", "of-a-secrets-backend")
    return tmp_path / "handed.json"


def _spark(monkeypatch: pytest.MonkeyPatch, host: str, mode: str) -> None:
    connection = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": mode}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def _work(folder: Path, table: str = "people") -> LeasedWork:
    item = {
        "label": table,
        "table": table,
        "job": "merge",
        "request": {},
        "promise": {},
        "ticket": "",
        "to_spark": True,
        "where": "",
        "planned": True,
    }
    return LeasedWork(task_id="work", job="merge", item=item, jobs_folder=str(folder))


def test_a_job_has_its_document_and_options_and_none_of_airflows_secrets(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spark(monkeypatch, "local[1]", "client")
    (tmp_path / "merge.py").write_text(APPLICATION.format(target=str(target)))

    work = _work(tmp_path)
    work.submit(work.item, CONTEXT)
    work._hook._submit_sp.stdout.close()  # the provider leaves it open, which only a process of tests notices

    arguments, environment = json.loads(target.read_text())
    document = json.loads(environment["MAINTENANCE_JOB"])
    options = json.loads(environment["MAINTENANCE_STORAGE_OPTIONS"])
    assert arguments == []
    assert (document["job"], document["uri"]) == ("merge", str(tmp_path / "people.lance"))
    assert options == {"aws_region": "eu-1", "aws_access_key_id": "key", "aws_secret_access_key": SECRET}
    assert not [name for name in environment if "AIRFLOW" in name or "VAULT" in name]
    assert "airflow-s-fernet-key" not in json.dumps(environment)


@pytest.mark.parametrize("lacking", ["application", "spark-submit", "connection"])
def test_what_is_missing_to_start_an_application_is_named(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """Without the application people were told to correct the input, without spark-submit a file name, and without the
    connection the provider asked for YARN, four times more."""
    _spark(monkeypatch, "local[1]", "client")
    (tmp_path / "merge.py").write_text(APPLICATION.format(target=str(target)))
    if lacking == "application":
        (tmp_path / "merge.py").unlink()
    elif lacking == "spark-submit":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")

    work = _work(tmp_path)
    with pytest.raises(AirflowFailException) as refused:
        work.execute(CONTEXT)
    if work._hook._submit_sp is not None:
        work._hook._submit_sp.stdout.close()

    whole = {
        "application": "no such Spark application.*merge.py.*MAINTENANCE_JOBS_FOLDER",
        "spark-submit": "this worker has no spark-submit.*Spark",
        "connection": "the connection spark_default is not defined.*type spark",
    }
    assert re.search(whole[lacking], str(refused.value))
    assert not target.exists()


def test_verdict_of_an_application_that_ran_is_not_replaced_by_what_is_missing_now(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secrets backend that failed at that moment would have let damage be tried again."""
    _spark(monkeypatch, "local[1]", "client")
    (tmp_path / "merge.py").write_text("import os, sys; os.remove(__file__); sys.exit(5)")
    work = _work(tmp_path)

    with pytest.raises(AirflowFailException, match="no retry can mend this"):
        work.execute(CONTEXT)
    work._hook._submit_sp.stdout.close()


def test_work_of_another_job_is_refused(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _spark(monkeypatch, "local[1]", "client")
    work = _work(tmp_path)
    work.item = {**work.item, "job": "ingest"}

    with pytest.raises(AirflowFailException, match="one job only"):
        work.execute(CONTEXT)

    assert not target.exists()


def test_the_operator_names_what_else_jobs_inherit() -> None:
    worker = {"PATH": "/bin", "VAULT_TOKEN": "x", "OUR_CLUSTER": "a", "MAINTENANCE_JOB_ENVIRONMENT": "OUR_*, NOT_SET"}

    assert set(inherited(worker)) == {"PATH", "OUR_CLUSTER", "MAINTENANCE_JOB_ENVIRONMENT"}
    assert "OUR_CLUSTER" not in inherited({**worker, "MAINTENANCE_JOB_ENVIRONMENT": ""})


@pytest.mark.parametrize("more", ["", "MAINTENANCE_*", "*", "MAINTENANCE_NOTIFIERS"])
def test_what_notifiers_are_made_with_reaches_no_job(more: str) -> None:
    """Addresses of webhooks are secrets, and jobs inherited them with the other variables of the maintenance."""
    worker = {"MAINTENANCE_NOTIFIERS": "[]", "MAINTENANCE_TABLES": "t", "MAINTENANCE_JOB_ENVIRONMENT": more}

    assert set(inherited(worker)) == {"MAINTENANCE_TABLES", "MAINTENANCE_JOB_ENVIRONMENT"}


@pytest.mark.parametrize("host", ["yarn", "spark://127.0.0.1"])
def test_secrets_never_reach_the_command_line_of_a_cluster(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    _spark(monkeypatch, host, "cluster")

    with pytest.raises(AirflowFailException, match="runs on the cluster") as refused:
        _work(tmp_path).execute(CONTEXT)

    assert SECRET not in str(refused.value)
    assert not target.exists()


def test_a_document_too_long_for_a_command_line_is_refused(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spark(monkeypatch, "yarn", "cluster")
    work = _work(tmp_path, "open")
    work.item["request"] = {"regions": [str(UUID(int=number, version=4)) for number in range(5000)]}

    with pytest.raises(AirflowFailException, match="too long for the command line"):
        work.execute(CONTEXT)

    assert not target.exists()


@pytest.mark.parametrize(("host", "mode"), [("yarn", "client"), ("yarn", "cluster")])
def test_the_command_line_has_no_variables(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, mode: str
) -> None:
    _spark(monkeypatch, host, mode)
    work = _work(tmp_path, "open" if mode == "cluster" else "people")
    (tmp_path / "merge.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))  # without spark-submit, so that nothing is sent to a cluster

    with pytest.raises(AirflowFailException, match="this worker has no spark-submit"):
        work.execute(CONTEXT)

    command = work._hook._build_spark_submit_command(work.application)
    assert not [part for part in command if "Env." in part or SECRET in part]
    assert (command[-1].startswith('{"')) == (mode == "cluster")

"""The connection type lance, without servers: Airflow reads the connections from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import redact
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse

from memwal_core.airflow import get_provider_info
from memwal_core.airflow.failures import reason_to_give_up
from memwal_core.airflow.hook import LanceHook
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.storage.options import environment_storage_options
from testkit.tables.people import make_people_table


def _connection(monkeypatch: pytest.MonkeyPatch, **fields: object) -> LanceHook:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "lance", **fields}))
    return LanceHook("lake")


def test_options_come_from_extra_fields_and_the_key_from_login_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": True, "timeout": 5}
    hook = _connection(monkeypatch, host="s3://bucket", login="key", password="hidden", extra=extra)

    assert hook.storage_options() == {
        "aws_endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "timeout": "5",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "hidden",
    }
    assert (hook.get_conn().address, hook.get_conn().options) == ("s3://bucket", hook.storage_options())
    assert "hidden" not in repr(hook.get_conn())


def test_fields_that_the_form_leaves_empty_are_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"aws_region": None, "aws_endpoint": "", "allow_http": False}

    assert _connection(monkeypatch, extra=extra).storage_options() == {"allow_http": "false"}


def test_values_that_may_be_secret_are_masked_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "azure_storage_account_key": "azure-secret",
        "azure_storage_sas_key": "sas-secret",
        "aws_region": "us-east",
    }
    _connection(monkeypatch, login="the-login", password="the-password", extra=extra).storage_options()

    masked = redact("azure-secret sas-secret the-login the-password us-east")

    assert masked == "*** *** *** *** us-east"


def test_connection_of_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match="not of type lance"):
        _connection(monkeypatch, conn_type="aws").storage_options()


def test_connection_that_is_missing_is_named_and_no_retry_defines_it() -> None:
    """The page said AirflowNotFoundException and no name, and each task of the table was tried five times."""
    with pytest.raises(InvalidRequestError, match="the connection nobody is not defined"):
        LanceHook("nobody").storage_options()


@pytest.mark.parametrize(
    "text", ["{hidden", "://@@:hidden", "lance://host:hidden/", '{"conn_type": "lance", "hidden": 1}']
)
def test_connection_that_airflow_does_not_understand_is_told_from_one_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It was said not to be defined, to people who saw it in their environment."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", text)

    with pytest.raises(InvalidRequestError, match="AIRFLOW_CONN_LAKE is not understood") as refused:
        LanceHook("lake").storage_options()

    assert "hidden" not in str(refused.value)


class Keeper:
    """A backend of Airflow's secrets, which fails for the first times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def get_connection(self, conn_id: str) -> Connection | None:
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionError("hidden")
        return Connection(conn_id=conn_id, conn_type="lance") if conn_id == "lake" else None


class Server:
    """What a task asks of Airflow's API server, which fails, or knows no connection."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def send(self, message: object) -> ErrorResponse:
        if self.fails:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


def test_backend_of_secrets_that_fails_is_told_from_a_connection_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute without one was told as a connection that is not defined, and ended runs for good."""
    backends = list[Keeper]()
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: backends)

    backends[:] = [Keeper(0), Keeper(9)]
    assert LanceHook("lake").storage_options() == {}  # The first one has it.
    with pytest.raises(UnavailableError, match="a backend of Airflow's secrets fails") as told:
        LanceHook("nobody").storage_options()
    backends[:] = [Keeper(1)]
    assert LanceHook("lake").storage_options() == {}  # It failed once.
    with pytest.raises(InvalidRequestError, match="the connection nobody is not defined"):
        LanceHook("nobody").storage_options()

    assert told.value.facts["backend"] == "Keeper: ConnectionError"
    assert reason_to_give_up(told.value) is None


def test_connection_that_airflow_denies_is_refused_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle called people anew: only a table of which we say that it cannot be opened is left alone for hours."""

    def deny(_: str) -> Connection:
        raise PermissionError("what Airflow raises since 3.2 is one")

    monkeypatch.setattr(BaseHook, "get_connection", deny)

    with pytest.raises(InvalidRequestError, match="Airflow denies the connection lake"):
        LanceHook("lake").storage_options()


def test_api_server_that_fails_is_told_from_a_connection_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Server(fails=True), raising=False)
    with pytest.raises(UnavailableError, match="a backend of Airflow's secrets fails"):
        LanceHook("nobody").storage_options()

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Server(fails=False), raising=False)
    with pytest.raises(InvalidRequestError, match="the connection nobody is not defined"):
        LanceHook("nobody").storage_options()


def test_nested_option_is_refused_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        _connection(monkeypatch, extra={"aws": {"secret": "hidden"}}).storage_options()

    assert refused.value.facts["option"] == "aws"
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "extra", ["aws_secret_access_key=hidden", '{"aws_region": "us"', "[1, 2]", [1, 2], 5, '"hidden"']
)
def test_extra_that_is_no_object_is_refused_without_its_text(monkeypatch: pytest.MonkeyPatch, extra: object) -> None:
    """Some were an AttributeError; text that is no JSON was left out, and the store asked without credentials."""
    hook = _connection(monkeypatch, host="s3://bucket", extra=extra)

    with pytest.raises(InvalidRequestError, match="no JSON object") as refused:
        hook.storage_options()

    assert refused.value.facts["connection"] == "lake"
    assert "hidden" not in str(refused.value)
    assert hook.test_connection() == (False, str(refused.value))


@pytest.mark.parametrize("extra", [None, "", "null", "{}"])
def test_extra_may_be_left_out(monkeypatch: pytest.MonkeyPatch, extra: object) -> None:
    assert _connection(monkeypatch, extra=extra).storage_options() == {}


def test_button_says_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_people_table(str(tmp_path / "people.lance"))

    assert _connection(monkeypatch, host=str(tmp_path)).test_connection() == (True, f"1 directory at {tmp_path}")
    assert _connection(monkeypatch).test_connection()[0] is False


def test_button_says_what_is_wrong_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    hook = _connection(monkeypatch, host="s3://bucket", login="key", password="hidden", extra=extra)

    works, message = hook.test_connection()

    assert not works
    assert "hidden" not in message


def test_provider_names_the_hook_under_its_type() -> None:
    [declared] = get_provider_info()["connection-types"]  # type: ignore[misc]

    assert declared["connection-type"] == LanceHook.conn_type
    assert declared["hook-class-name"] == f"{LanceHook.__module__}.{LanceHook.__name__}"


def test_options_of_the_environment_are_an_object_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINTENANCE_STORAGE_OPTIONS", '{"a": "b"}')
    assert environment_storage_options() == {"a": "b"}

    for wrong in ('{"secret": 1}', "secret", "[]"):
        monkeypatch.setenv("MAINTENANCE_STORAGE_OPTIONS", wrong)
        with pytest.raises(InvalidRequestError) as refused:
            environment_storage_options()
        assert "secret" not in str(refused.value)

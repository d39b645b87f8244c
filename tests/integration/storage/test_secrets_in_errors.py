"""Stores that quote requests in their answers: nothing that this package says repeats a secret."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lance
import obstore
import pytest
from obstore.store import S3Store

from memwal_core.base_table.translate import translated
from memwal_core.errors import MemwalError
from memwal_core.settings import Settings, StorageSettings
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.faults.quoting_server import QuotingServer, quoting_server

ONCE = StorageSettings(max_attempts=1)
CANARY = "CANARY"
S3 = {
    "aws_access_key_id": "AKIACANARYCANARY0001",
    "aws_secret_access_key": "CANARY-secret/key+value=0123456789",
    "aws_session_token": "FwoGCANARYsessiontoken0123456789abc//=",
    "aws_region": "eu-1",
    "client_max_retries": "0",
    "allow_http": "true",
}
AZURE = {
    "azure_storage_account_name": "lake",
    "azure_storage_sas_key": "sv=2020&sig=CANARYsas0123456789abcdef%3D&se=2030",
    "client_max_retries": "0",
    "allow_http": "true",
}


@pytest.fixture(scope="module")
def server() -> Iterator[QuotingServer]:
    with quoting_server() as running:
        yield running


def _options(server: QuotingServer, scheme: str) -> dict[str, str]:
    if scheme == "s3":
        return {**S3, "aws_endpoint": server.endpoint}
    return {**AZURE, "azure_storage_endpoint": server.endpoint}


def _read(uri: str, options: Mapping[str, str]) -> None:
    open_store(uri, storage_options=options, settings=ONCE).get("x")


def _open(uri: str, options: Mapping[str, str]) -> None:
    Table.open(uri, storage_options=dict(options), settings=Settings(storage=ONCE))


def _lance(uri: str, options: Mapping[str, str]) -> None:
    open_store(uri, storage_options=options)  # as every table does first
    with translated("read", uri):
        lance.dataset(uri, storage_options=dict(options))


@pytest.mark.parametrize(
    ("use", "status"), [(_read, 400), (_read, 403), (_read, 500), (_open, 400), (_open, 500), (_lance, 400)]
)
@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_no_error_repeats_what_a_store_quotes(
    server: QuotingServer,
    caplog: pytest.LogCaptureFixture,
    use: Callable[[str, Mapping[str, str]], None],
    scheme: str,
    status: int,
) -> None:
    server.status = status
    server.requests.clear()

    with caplog.at_level(logging.DEBUG), pytest.raises(MemwalError) as raised:
        use(f"{scheme}://bucket/t", _options(server, scheme))

    assert CANARY in "".join(server.requests)  # it was sent, and came back
    said = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + str(raised.value.facts)
    assert CANARY not in said + caplog.text
    assert "***" in said


def test_the_library_below_repeats_it(server: QuotingServer) -> None:
    """The control: what is translated has the secret in it."""
    server.status = 400
    config: Any = {name: value for name, value in _options(server, "s3").items() if name.startswith("aws")}
    store = S3Store("bucket", config=config, client_options={"allow_http": True})

    with pytest.raises(obstore.exceptions.BaseError, match=S3["aws_session_token"]):
        obstore.get(store, "x").bytes()


def test_a_command_prints_none_of_it(server: QuotingServer) -> None:
    server.status = 403
    server.requests.clear()
    variables = {
        **{name.upper(): value for name, value in S3.items() if name.startswith("aws")},
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "RUST_BACKTRACE": "1",
        "MEMWAL_STORAGE__MAX_ATTEMPTS": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", "from memwal_core.cli import main; main()", "status", "s3://bucket/t", "--json"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert ran.returncode == 2, ran.stderr
    assert "error: the store refused" in ran.stderr
    assert S3["aws_session_token"] in "".join(server.requests)
    assert CANARY not in ran.stdout + ran.stderr

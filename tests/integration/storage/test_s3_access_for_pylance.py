"""The options of a store open the same place in pylance, whatever they came from."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.storage import ObjectStore, open_store
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.s3_server import S3Server

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(autouse=True)
def _no_aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


def _round_trip(store: ObjectStore) -> int:
    lance.write_dataset(ROWS, store.uri_of("data/t.lance"), storage_options=dict(store.storage_options))
    assert store.list_directories("data/t.lance") == ["_transactions", "_versions", "data"]
    opened = lance.dataset(store.uri_of("data/t.lance"), storage_options=dict(store.storage_options))
    return int(opened.count_rows())


def test_explicit_options_open_the_same_table(s3: S3Server) -> None:
    store = open_store("s3://bucket/explicit root/", storage_options=s3.storage_options)

    assert _round_trip(store) == 3


@pytest.mark.parametrize("name", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_environment_alone_opens_the_same_table(s3: S3Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in s3.environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AWS_ENDPOINT")
    monkeypatch.setenv(name, s3.endpoint)

    assert _round_trip(open_store(f"s3://bucket/environment-{name}")) == 3


def test_credentials_of_a_boto3_profile_reach_both(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = profile-key\naws_secret_access_key = hidden\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with faulty_proxy(s3.endpoint) as proxy:
        store = open_store(
            "s3://bucket/profile", storage_options={"aws_endpoint": proxy.endpoint, "allow_http": "true"}
        )
        monkeypatch.delenv("AWS_PROFILE")

        assert _round_trip(store) == 3

        signed_with = {headers["authorization"].split("=")[1].split("/")[0] for _, _, headers in proxy.requests()}
    assert signed_with == {"profile-key"}


@pytest.mark.parametrize("name", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_explicit_endpoint_wins_over_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")

    store = open_store(f"s3://bucket/wins-{name}", storage_options=s3.storage_options)

    assert _round_trip(store) == 3


def test_token_of_other_keys_in_the_environment_is_refused(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-somebody")

    with pytest.raises(InvalidRequestError, match="AWS_SESSION_TOKEN"):
        open_store("s3://bucket/t", storage_options=s3.storage_options)


def test_token_of_the_same_keys_is_used(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.storage_options["aws_access_key_id"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", "our-token")

    store = open_store("s3://bucket/t", storage_options=s3.storage_options)

    assert store.storage_options["aws_session_token"] == "our-token"


def test_missing_credentials_are_refused_at_opening(s3: S3Server) -> None:
    with pytest.raises(InvalidRequestError, match="credentials"):
        open_store("s3://bucket/t", storage_options={"aws_endpoint": s3.endpoint, "allow_http": "true"})


@pytest.mark.parametrize("suffix", ["?", "?version=3", "#fragment", "%20"])
def test_query_or_escape_in_the_address_never_opens_another_place(s3: S3Server, suffix: str) -> None:
    with pytest.raises(InvalidRequestError):
        open_store(f"s3://bucket/table{suffix}", storage_options=s3.storage_options)

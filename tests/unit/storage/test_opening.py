from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import StorageSettings
from memwal_core.storage import StoreKind, open_store

LIMITS = {"timeout": "20000ms", "connect_timeout": "5000ms", "client_retry_timeout": "30"}
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "hunter2", "aws_region": "eu-west-1"}


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.req("WRT-26", "FMT-47")
def test_kind_says_where_the_bytes_end_up(tmp_path: Path) -> None:
    azure = {"account_name": "account", "account_key": "aHVudGVyMg=="}

    assert open_store(str(tmp_path)).kind is StoreKind.LOCAL
    assert open_store("memory://").kind is StoreKind.MEMORY
    assert open_store("s3://bucket/t", storage_options=KEYS).kind is StoreKind.S3
    assert open_store("gs://bucket/t", storage_options={"google_skip_signature": "true"}).kind is StoreKind.GCS
    assert open_store("az://container/t", storage_options=azure).kind is StoreKind.AZURE


def test_memory_stores_are_separate() -> None:
    first, second = open_store("memory://"), open_store("memory://")

    first.put_if_absent("object", b"x")

    assert second.head("object") is None


def test_options_reach_pylance_under_its_names() -> None:
    store = open_store(
        "s3://bucket/t",
        storage_options={"ACCESS_KEY_ID": "key", "secret_access_key": "hunter2", "region": "eu-west-1"},
    )

    assert dict(store.storage_options) == KEYS | LIMITS


@pytest.mark.req("T6")
def test_limits_of_time_come_from_the_setting_unless_options_say_otherwise() -> None:
    settings = StorageSettings(read_timeout_s=3)
    store = open_store("s3://bucket/t", storage_options={**KEYS, "connect_timeout": "1s"}, settings=settings)

    assert store.storage_options.items() >= {"timeout": "2000ms", "connect_timeout": "1s"}.items()


def test_options_of_lance_alone_are_passed_on_to_it() -> None:
    store = open_store("s3://bucket/t", storage_options={**KEYS, "download_retry_count": "7"})

    assert store.storage_options["download_retry_count"] == "7"


def test_local_store_needs_no_options(tmp_path: Path) -> None:
    assert dict(open_store(str(tmp_path)).storage_options) == {}


def test_representation_holds_no_secret() -> None:
    store = open_store("s3://bucket/t", storage_options=KEYS)

    assert "hunter2" not in repr(store)
    assert "hunter2" not in repr(vars(store))


def test_unknown_option_is_refused_by_name_without_its_value() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        open_store("s3://bucket/t", storage_options={**KEYS, "aws_bogus": "some value"})

    assert "aws_bogus" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "some value" not in str(raised.value)


def test_bad_value_of_a_client_option_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        open_store("s3://bucket/t", storage_options={**KEYS, "timeout": "not-a-time"})

    assert "not-a-time" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_plain_http_needs_leave() -> None:
    plain = {**KEYS, "aws_endpoint": "http://user:hunter3@127.0.0.1:1"}

    with pytest.raises(InvalidRequestError, match="allow_http") as raised:
        open_store("s3://bucket/t", storage_options=plain)

    assert "hunter3" not in str(raised.value)
    assert open_store("s3://bucket/t", storage_options={**plain, "allow_http": "true"}).kind is StoreKind.S3


def test_explicit_region_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")

    assert open_store("s3://b/t", storage_options=KEYS).storage_options["aws_region"] == "eu-west-1"


def test_public_bucket_needs_no_credentials() -> None:
    store = open_store("s3://bucket/t", storage_options={"aws_skip_signature": "true", "aws_region": "us-east-1"})

    assert "aws_access_key_id" not in store.storage_options


@pytest.mark.parametrize(
    "wrong",
    [
        {"aws_endpoint": "localhost:9000"},
        {"aws_endpoint": "not a url"},
        {"aws_endpoint": "http://127.0.0.1:99999999"},
        {"aws_region": "us east"},
        {"aws_secret_access_key": "hidden", "aws_access_key_id": "from a file\n"},
        {"aws_session_token": "hidden\n"},
    ],
)
def test_options_at_which_the_client_panics_are_refused_and_not_shown(wrong: dict[str, str]) -> None:
    """A panic is no Exception: it went past every handler, and people saw Rust's words."""
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "hidden", "aws_region": "us-east-1", **wrong}
    store = open_store("s3://bucket", storage_options={"allow_http": "true", **options})

    for ask in (lambda: store.list_directories(""), lambda: store.head("x"), lambda: store.put("x", b"")):
        with pytest.raises(InvalidRequestError, match="gave up") as refused:
            ask()
        assert "storage options" in refused.value.remedy
        assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("value", [True, None, 30])
def test_options_that_are_no_texts_are_named_without_their_values(value: object) -> None:
    """``{"allow_http": True}`` ended in an AttributeError of this library."""
    with pytest.raises(InvalidRequestError, match="no texts") as refused:
        open_store("s3://lake", storage_options={"aws_secret_access_key": "x", "allow_http": value})
    assert refused.value.facts["options"] == [f"allow_http ({type(value).__name__})"]

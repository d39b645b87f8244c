"""An S3 store behind a line that breaks: lost replies, overload, missing conditions."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError, ObjectExistsError, StoreRefusedError, UnavailableError
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, open_store
from memwal_core.storage.probe import probe_conditional_put
from testkit.clock import ManualClock
from testkit.faults.faulty_proxy import FaultyProxy
from testkit.rng import seeded_rng
from testkit.s3_server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def direct(s3: S3Server, tmp_path: Path) -> ObjectStore:
    return open_store(s3.uri(f"bucket/{tmp_path.name}"), storage_options=s3.storage_options)


@pytest.fixture
def store(s3: S3Server, proxy: FaultyProxy, clock: ManualClock, tmp_path: Path) -> ObjectStore:
    return open_store(
        s3.uri(f"bucket/{tmp_path.name}"),
        storage_options={**s3.storage_options, "aws_endpoint": proxy.endpoint},
        settings=StorageSettings(max_attempts=3, retry_wait_s=1.0, retry_wait_max_s=1.5),
        clock=clock,
        rng=seeded_rng(1),
    )


@pytest.mark.req("FMT-47")
def test_lost_reply_to_put_if_absent_is_settled_by_reading_back(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.lose_reply("PUT")

    store.put_if_absent("object", b"mine")

    assert proxy.count("PUT") == 1
    assert store.get("object") == b"mine"


@pytest.mark.req("FMT-47")
def test_lost_refusal_of_put_if_absent_is_still_a_refusal(
    store: ObjectStore, direct: ObjectStore, proxy: FaultyProxy
) -> None:
    direct.put_if_absent("object", b"theirs")
    proxy.lose_reply("PUT")

    with pytest.raises(ObjectExistsError):
        store.put_if_absent("object", b"mine")

    assert direct.get("object") == b"theirs"


@pytest.mark.parametrize("status", [400, 403])
def test_refusal_after_a_lost_reply_does_not_say_that_nothing_was_written(
    store: ObjectStore, direct: ObjectStore, proxy: FaultyProxy, status: int
) -> None:
    """Credentials that ended between the write and the look behind it made a commit that had landed a refused one."""
    proxy.lose_reply("PUT")
    proxy.answer("GET", status, times=100)

    with pytest.raises(UnavailableError, match="did not answer a write") as raised:
        store.put_if_absent("object", b"mine")

    assert raised.value.facts["operation"] == "put_if_absent"
    assert direct.get("object") == b"mine"


def test_passing_refusal_after_a_lost_reply_does_no_harm(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.lose_reply("PUT")
    proxy.answer("GET", 403)

    store.put_if_absent("object", b"mine")

    assert proxy.count("PUT") == 1


def test_lost_reply_to_put_file_if_absent_is_settled_and_consumes_the_file(
    store: ObjectStore, proxy: FaultyProxy
) -> None:
    source = store.staging_directory("wal/1") / "prepared"
    source.write_bytes(b"mine")
    proxy.lose_reply("PUT")

    store.put_file_if_absent("wal/1", source)

    assert store.get("wal/1") == b"mine"
    assert not source.exists()


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_passing_overload_is_retried_after_growing_jittered_waits(
    store: ObjectStore, proxy: FaultyProxy, clock: ManualClock, status: int
) -> None:
    proxy.answer("PUT", status, times=2)

    store.put_if_absent("object", b"mine")

    assert store.get("object") == b"mine"
    first, second = clock.sleeps
    assert 0.5 <= first <= 1.0
    assert 0.75 <= second <= 1.5


@pytest.mark.parametrize("status", [409, 412])
def test_conflict_that_no_condition_asked_for_is_retried_and_no_lost_race(
    store: ObjectStore, direct: ObjectStore, proxy: FaultyProxy, status: int
) -> None:
    """A read said that its object already exists, or has changed, and a hint that was overwritten said so, too."""
    direct.put_if_absent("a/object", b"mine")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("GET", lambda: store.get("a/object")),
        ("GET", lambda: store.get_range("a/object", 0, 2)),
        ("GET", lambda: list(store.list_objects("a"))),
        ("GET", lambda: store.list_directories("")),
        ("HEAD", lambda: store.head("a/object")),
        ("PUT", lambda: store.put("a/object", b"other")),
        ("POST", lambda: store.delete("a/object")),
    ]
    for method, call in calls:
        proxy.forget()
        proxy.answer(method, status, times=2)
        call()
        assert proxy.count(method) == 3
        proxy.answer(method, status, times=3)
        with pytest.raises(UnavailableError):
            call()


def test_lasting_outage_is_unavailable_after_the_configured_attempts(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.answer("GET", 503, times=100)

    with pytest.raises(UnavailableError) as raised:
        store.get("object")

    assert proxy.count("GET") == 3
    assert raised.value.facts["status"] == 503


def test_a_listing_fetches_page_by_page_and_only_the_page_that_failed_again(
    store: ObjectStore, direct: ObjectStore, proxy: FaultyProxy
) -> None:
    """A listing of a million objects was held in memory whole, and begun anew for each page that failed."""
    names = [f"wal/{number:04}" for number in range(1_005)]
    for name in names:
        direct.put(name, b"")
    proxy.forget()

    listed = iter(store.list_objects("wal"))
    first = [next(listed).path for _ in range(1_000)]
    assert proxy.count("GET") == 1

    proxy.answer("GET", 503, times=2)
    assert [*first, *(each.path for each in listed)] == names
    assert proxy.count("GET") == 4


def test_unreachable_server_is_unavailable(s3: S3Server, clock: ManualClock) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # Holds the port, so that no other server gets it, and listens to nobody.
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        store = open_store(
            "s3://bucket/t", storage_options={**s3.storage_options, "aws_endpoint": endpoint}, clock=clock
        )

        with pytest.raises(UnavailableError):
            store.head("object")
        with pytest.raises(UnavailableError):
            store.put_if_absent("object", b"x")
        with pytest.raises(UnavailableError):
            list(store.list_objects(""))


@pytest.mark.parametrize("status", [400, 401, 403])
def test_refused_request_is_not_retried(
    store: ObjectStore, proxy: FaultyProxy, clock: ManualClock, status: int
) -> None:
    proxy.answer("PUT", status)

    with pytest.raises(StoreRefusedError):
        store.put_if_absent("object", b"mine")

    assert proxy.count("PUT") == 1
    assert clock.sleeps == []


def test_redirect_names_the_region_as_the_cause(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.answer("GET", 301)

    with pytest.raises(StoreRefusedError) as raised:
        store.get("object")

    assert "aws_region" in raised.value.remedy


def test_missing_bucket_is_an_invalid_request(s3: S3Server, clock: ManualClock) -> None:
    store = open_store("s3://no-such-bucket/t", storage_options=s3.storage_options, clock=clock)

    for call in _reads_and_writes(store):
        with pytest.raises(InvalidRequestError):
            call()
    assert clock.sleeps == []


def _reads_and_writes(store: ObjectStore) -> list[Callable[[], object]]:
    return [
        lambda: store.get("object"),
        lambda: store.put_if_absent("object", b"x"),
        lambda: store.put("object", b"x"),
        lambda: list(store.list_objects("")),
        lambda: store.list_directories("a"),
    ]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_lost_reply_to_delete_is_repeated(
    store: ObjectStore, direct: ObjectStore, proxy: FaultyProxy, method: str
) -> None:
    store.put_if_absent("a/object", b"x")
    proxy.lose_reply(method)

    store.delete("a/object")

    assert direct.head("a/object") is None


@pytest.mark.req("LEASE-17")
def test_server_that_ignores_conditions_is_detected_and_left_clean(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.ignore_conditions()

    with pytest.raises(InvalidRequestError) as put:
        probe_conditional_put(store, "_mem_wal")

    assert put.value.facts["condition"] == "If-None-Match"
    assert list(store.list_objects("")) == []


@pytest.mark.req("LEASE-17")
def test_server_without_conditional_put_is_detected(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.answer("PUT", 501)

    with pytest.raises(InvalidRequestError) as raised:
        probe_conditional_put(store, "_mem_wal")

    assert "If-None-Match" in raised.value.remedy
    assert list(store.list_objects("")) == []


def test_probe_of_an_unreachable_store_proves_nothing(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.answer("PUT", 503, times=100)

    with pytest.raises(UnavailableError):
        probe_conditional_put(store, "_mem_wal")


@pytest.mark.req("FMT-47")
def test_every_conditional_put_sends_its_condition(store: ObjectStore, proxy: FaultyProxy) -> None:
    store.put_if_absent("object", b"1")
    source = store.staging_directory("file") / "prepared"
    source.write_bytes(b"2")
    store.put_file_if_absent("file", source)

    conditions = [headers.get("if-none-match") for method, _, headers in proxy.requests() if method == "PUT"]
    assert conditions == ["*", "*"]

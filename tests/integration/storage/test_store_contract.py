"""What every store promises, on every kind of store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import pytest

from memwal_core.errors import FencedError, InvalidRequestError, ObjectExistsError, ObjectNotFoundError
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, StoreKind, open_store
from memwal_core.storage.probe import probe_conditional_put, race_conditional_puts
from testkit.faults.faulty_store import FaultyStore
from testkit.rng import seeded_rng
from testkit.s3_server import S3Server

KINDS = ["memory", "local", "local-unsynced", "faulty", pytest.param("s3", marks=pytest.mark.s3)]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    openers: dict[str, Callable[[], ObjectStore]] = {
        "memory": lambda: open_store("memory://"),
        "local": lambda: open_store(str(tmp_path / "my table")),
        "local-unsynced": lambda: open_store(str(tmp_path / "table"), settings=StorageSettings(fsync=False)),
        "faulty": lambda: FaultyStore(open_store("memory://")),
        "s3": lambda: _s3_store(request.getfixturevalue("s3"), tmp_path.name),
    }
    return openers[request.param]()


def _s3_store(running: S3Server, name: str) -> ObjectStore:
    return open_store(running.uri(f"bucket/my tables/{name}"), storage_options=running.storage_options)


def _paths(store: ObjectStore, prefix: str) -> set[str]:
    return {found.path for found in store.list_objects(prefix)}


@pytest.mark.req("FMT-47")
def test_written_object_reads_back_whole_and_in_parts(store: ObjectStore) -> None:
    store.put_if_absent("a/b/object", b"0123456789")

    assert store.get("a/b/object") == b"0123456789"
    assert store.get_range("a/b/object", 0, 10) == b"0123456789"
    assert store.get_range("a/b/object", 3, 4) == b"3456"
    assert store.get_range("a/b/object", 8, 100) == b"89"
    assert store.get_range("a/b/object", 10, 1) == b""
    assert store.get_range("a/b/object", 3, 0) == b""


@pytest.mark.req("FMT-47")
def test_empty_object_is_an_object(store: ObjectStore) -> None:
    store.put_if_absent("empty", b"")

    assert store.get("empty") == b""
    found = store.head("empty")
    assert found is not None
    assert found.size_bytes == 0


def test_negative_range_is_refused(store: ObjectStore) -> None:
    store.put_if_absent("object", b"0123456789")

    with pytest.raises(InvalidRequestError):
        store.get_range("object", -1, 1)
    with pytest.raises(InvalidRequestError):
        store.get_range("object", 0, -1)


@pytest.mark.req("FMT-47")
def test_missing_object_is_not_found(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.get("nothing/here")
    with pytest.raises(ObjectNotFoundError):
        store.get_range("nothing/here", 0, 1)
    with pytest.raises(ObjectNotFoundError):
        store.get_range("nothing/here", 0, 0)
    assert store.head("nothing/here") is None


def test_directory_is_no_object(store: ObjectStore) -> None:
    store.put_if_absent("directory/object", b"x")

    assert store.head("directory") is None
    with pytest.raises(ObjectNotFoundError):
        store.get("directory")


@pytest.mark.req("FMT-47")
def test_head_describes_the_object(store: ObjectStore) -> None:
    store.put_if_absent("a/object", b"12345")

    found = store.head("a/object")

    assert found is not None
    assert (found.path, found.size_bytes) == ("a/object", 5)
    assert found.modified.tzinfo == UTC
    assert found.etag
    assert list(store.list_objects("a")) == [found]


@pytest.mark.req("FMT-47", "MAN-04")
def test_second_put_if_absent_is_refused_and_changes_nothing(store: ObjectStore) -> None:
    store.put_if_absent("object", b"first")

    with pytest.raises(ObjectExistsError) as raised:
        store.put_if_absent("object", b"second")

    assert raised.value.facts["path"] == "object"
    assert store.get("object") == b"first"


@pytest.mark.req("FMT-47")
def test_put_if_absent_with_the_bytes_that_are_there_succeeds(store: ObjectStore) -> None:
    store.put_if_absent("object", b"mine")
    before = store.head("object")

    store.put_if_absent("object", b"mine")

    assert store.head("object") == before


@pytest.mark.req("FMT-47", "MAN-04")
def test_eight_racing_put_if_absent_have_one_winner(store: ObjectStore) -> None:
    for race in range(5):
        gate = threading.Barrier(8)

        def attempt(rival: int, gate: threading.Barrier = gate, race: int = race) -> bytes | None:
            data = f"rival {rival}".encode()
            gate.wait()
            try:
                store.put_if_absent(f"new directory {race}/object", data)
            except ObjectExistsError:
                return None
            return data

        with ThreadPoolExecutor(8) as pool:
            winners = [won for won in pool.map(attempt, range(8)) if won is not None]

        assert winners == [store.get(f"new directory {race}/object")]


def test_put_parts_if_absent_joins_them_and_never_replaces_other_bytes(store: ObjectStore) -> None:
    store.put_parts_if_absent("wal/1", [b"con", memoryview(b"tent"), b""])
    store.put_parts_if_absent("wal/1", [b"content"])

    with pytest.raises(ObjectExistsError):
        store.put_parts_if_absent("wal/1", [b"con"])

    assert store.get("wal/1") == b"content"


def test_put_file_if_absent_publishes_and_consumes_the_file(store: ObjectStore) -> None:
    source = store.staging_directory("wal/1") / "prepared"
    source.write_bytes(b"content")

    store.put_file_if_absent("wal/1", source)

    assert store.get("wal/1") == b"content"
    assert not source.exists()
    assert _paths(store, "") == {"wal/1"}


def test_put_file_if_absent_from_elsewhere_publishes_the_same(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere"
    source.write_bytes(b"content")

    store.put_file_if_absent("wal/1", source)

    assert store.get("wal/1") == b"content"
    assert not source.exists()


def test_put_file_if_absent_never_replaces_other_bytes(store: ObjectStore) -> None:
    store.put_if_absent("wal/1", b"first")
    source = store.staging_directory("wal/1") / "prepared"
    source.write_bytes(b"second")

    with pytest.raises(ObjectExistsError):
        store.put_file_if_absent("wal/1", source)

    assert store.get("wal/1") == b"first"
    assert source.read_bytes() == b"second"


def test_put_file_if_absent_with_the_bytes_that_are_there_succeeds(store: ObjectStore) -> None:
    store.put_if_absent("wal/1", b"mine")
    source = store.staging_directory("wal/1") / "prepared"
    source.write_bytes(b"mine")

    store.put_file_if_absent("wal/1", source)

    assert store.get("wal/1") == b"mine"


def test_put_file_if_absent_of_a_missing_file_is_not_found(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.put_file_if_absent("wal/1", store.staging_directory("wal/1") / "never-written")

    assert store.head("wal/1") is None


def test_put_large_writes_all_pieces_and_replaces_nothing(store: ObjectStore) -> None:
    store.put_large("data/1", iter([b"con", b"tent"]), 7)
    store.put_large("data/1", iter([b"con", b"tent"]), 7)

    with pytest.raises(ObjectExistsError):
        store.put_large("data/1", iter([b"other"]), 5)

    assert store.get("data/1") == b"content"
    assert _paths(store, "") == {"data/1"}


def test_put_large_whose_pieces_fail_writes_nothing(store: ObjectStore) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"con"
        raise FencedError("replaced", remedy="stop")

    with pytest.raises(FencedError):
        store.put_large("data/1", pieces(), 7)

    assert _paths(store, "") == set()


@pytest.mark.req("FMT-47")
def test_put_replaces(store: ObjectStore) -> None:
    store.put("a/hint", b"1")
    store.put("a/hint", b"22")

    assert store.get("a/hint") == b"22"
    assert _paths(store, "a") == {"a/hint"}


@pytest.mark.req("FMT-47")
def test_delete_is_repeatable(store: ObjectStore) -> None:
    store.put_if_absent("a/object", b"x")

    store.delete("a/object")
    store.delete("a/object")
    store.delete("never/there")

    assert store.head("a/object") is None


@pytest.mark.req("FMT-47")
def test_listing_shows_one_directory_recursively(store: ObjectStore) -> None:
    for path in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "5"):
        store.put_if_absent(path, b"x")

    assert _paths(store, "a") == {"a/1", "a/b/2", "a/b/c/3"}
    assert _paths(store, "a/") == {"a/1", "a/b/2", "a/b/c/3"}
    assert _paths(store, "") == {"a/1", "a/b/2", "a/b/c/3", "ab/4", "5"}
    assert _paths(store, "missing") == set()
    assert _paths(store, "5") == set()


@pytest.mark.req("FMT-47")
def test_listing_directories_shows_names_in_order(store: ObjectStore) -> None:
    for path in ("a/z/1", "a/b/2", "a/b/c/3", "a/file", "top"):
        store.put_if_absent(path, b"x")

    assert store.list_directories("a") == ["b", "z"]
    assert store.list_directories("") == ["a"]
    assert store.list_directories("missing") == []
    assert store.list_directories("a/file") == []


def test_listing_of_more_than_a_page_is_complete(store: ObjectStore) -> None:
    names = {f"many/{number:04d}" for number in range(1100)}
    for name in sorted(names):
        store.put(name, b"")

    assert _paths(store, "many") == names


def test_delete_directory_removes_that_directory_only(store: ObjectStore) -> None:
    for path in ("a/1", "a/b/2", "ab/3"):
        store.put_if_absent(path, b"x")

    assert store.delete_directory("a") == 2
    assert store.delete_directory("a") == 0

    assert _paths(store, "") == {"ab/3"}
    assert store.list_directories("") == ["ab"]
    store.put_if_absent("a/1", b"again")
    assert store.get("a/1") == b"again"


def test_delete_directory_of_the_root_is_refused(store: ObjectStore) -> None:
    store.put_if_absent("a/1", b"x")

    with pytest.raises(InvalidRequestError):
        store.delete_directory("")

    assert store.get("a/1") == b"x"


def test_syncing_a_directory_changes_nothing(store: ObjectStore) -> None:
    store.put_if_absent("a/b/1", b"x")

    store.sync_directory("a")
    with pytest.raises(InvalidRequestError):
        store.sync_directory("")

    assert _paths(store, "") == {"a/b/1"}


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a?b", "a#b", "a%20b", "a\x00b", "a/.tmp-x", "a\\b"]
)
def test_ambiguous_path_is_refused_by_every_method(store: ObjectStore, path: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.uri_of(path),
        lambda: store.get(path),
        lambda: store.get_range(path, 0, 1),
        lambda: store.head(path),
        lambda: store.put(path, b"x"),
        lambda: store.put_if_absent(path, b"x"),
        lambda: store.put_parts_if_absent(path, [b"x"]),
        lambda: store.put_file_if_absent(path, tmp_path / "file"),
        lambda: store.put_large(path, [b"x"], 1),
        lambda: store.delete(path),
        lambda: store.staging_directory(path),
    ]
    (tmp_path / "file").write_bytes(b"x")
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()
    assert _paths(store, "") == set()


def test_address_of_a_path_lies_below_the_root(store: ObjectStore) -> None:
    assert not store.uri.endswith("/") or store.kind is StoreKind.MEMORY
    assert store.uri_of("a/b") == f"{store.uri}/a/b"


@pytest.mark.req("LEASE-17")
def test_conditional_probe_accepts_the_store_and_leave_nothing(store: ObjectStore) -> None:
    probe_conditional_put(store, "_mem_wal", seeded_rng(1))
    race_conditional_puts([store] * 4, "_mem_wal", 2, seeded_rng(2))

    assert _paths(store, "") == set()

"""A local store opens regular files of its own directory, and nothing that could block, flood or lead elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memwal_core.clock import at_millis
from memwal_core.errors import CorruptionError, ObjectExistsError
from memwal_core.storage import ObjectStore, open_store
from memwal_core.storage.limits import MAX_OBJECT_BYTES
from testkit.clock import ManualClock

pytestmark = pytest.mark.req("T6")

PATH = "_mem_wal/region/manifest/1.binpb"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "table/_mem_wal/region/manifest").mkdir(parents=True)
    return tmp_path / "table"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_store(str(root))


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path) -> None:
    os.mknod(place, 0o600 | stat.S_IFSOCK)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _elsewhere(place: Path) -> None:
    outside = place.parents[4] / "secret"
    outside.write_bytes(b"secret")
    place.symlink_to(outside)


def _circle(place: Path) -> None:
    place.symlink_to(place)


Make = Callable[[Path], None]
strange = pytest.mark.parametrize("make", [_fifo, _socket, _device, _elsewhere, _circle])
READS: list[Callable[[ObjectStore], object]] = [
    lambda store: store.get(PATH),
    lambda store: store.get_range(PATH, 0, 5),
    lambda store: store.head(PATH),
    lambda store: store.link("copy", PATH),
]


@strange
@pytest.mark.parametrize("read", READS, ids=["get", "get_range", "head", "link"])
def test_what_is_not_a_file_of_the_table_is_refused_at_once(
    root: Path, store: ObjectStore, make: Make, read: Callable[[ObjectStore], object]
) -> None:
    make(root / PATH)

    with pytest.raises(CorruptionError) as caught:
        read(store)

    assert caught.value.facts["path"] == PATH


@pytest.mark.parametrize("make", [_fifo, _socket, _device, _elsewhere])
def test_what_is_not_a_file_of_the_table_is_not_taken_for_an_earlier_write(
    root: Path, store: ObjectStore, make: Make
) -> None:
    make(root / PATH)

    with pytest.raises(CorruptionError):
        store.put_if_absent(PATH, b"secret")


@strange
def test_listing_leaves_out_what_is_not_a_file(root: Path, store: ObjectStore, make: Make) -> None:
    (root / "file").write_bytes(b"1")
    make(root / PATH)

    assert [info.path for info in store.list_objects("")] == ["file"]


def test_links_within_the_table_and_hard_links_are_followed(root: Path, store: ObjectStore) -> None:
    """Flushed MemTables own their WAL entries by hard links."""
    (root / "data").mkdir()
    (root / "data/one").write_bytes(b"one")
    (root / "data/link").symlink_to("one")
    (root / "more").symlink_to(root / "data", target_is_directory=True)
    os.link(root / "data/one", root / "hard")

    assert store.get("data/link") == store.get("more/one") == store.get("hard") == b"one"
    assert store.get_range("more/link", 1, 10) == b"ne"


def test_the_table_itself_may_be_reached_through_links(tmp_path: Path, root: Path) -> None:
    (root / "file").write_bytes(b"1")
    (tmp_path / "alias").symlink_to(root)

    aliased = open_store(str(tmp_path / "alias"))

    assert aliased.get("file") == b"1"
    aliased.put_if_absent("new/file", b"2")
    assert (root / "new/file").read_bytes() == b"2"


CHANGES: list[Callable[[ObjectStore], object]] = [
    lambda store: store.put("out/inner/file", b"mine"),
    lambda store: store.put_if_absent("out/inner/new", b"mine"),
    lambda store: store.put_if_absent("out/missing/new", b"mine"),
    lambda store: store.delete("out/inner/file"),
    lambda store: store.delete_directory("out/inner"),
    lambda store: store.link("out/inner/link", "file"),
    lambda store: store.sync_directory("out/inner"),
    lambda store: store.sync_objects(["out/inner/file"]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_changed_through_a_linked_directory_outside(
    tmp_path: Path, root: Path, store: ObjectStore, change: Callable[[ObjectStore], object]
) -> None:
    (root / "file").write_bytes(b"1")
    (tmp_path / "other/inner").mkdir(parents=True)
    (tmp_path / "other/inner/file").write_bytes(b"theirs")
    (root / "out").symlink_to(tmp_path / "other")

    with pytest.raises(CorruptionError, match="leads out"):
        change(store)

    assert (tmp_path / "other/inner/file").read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path / "other")) == ["inner"]
    assert os.listdir(tmp_path / "other/inner") == ["file"]


def test_nothing_is_listed_through_a_linked_directory_outside(tmp_path: Path, root: Path, store: ObjectStore) -> None:
    (tmp_path / "other/inner").mkdir(parents=True)
    (tmp_path / "other/inner/file").write_bytes(b"theirs")
    (root / "out").symlink_to(tmp_path / "other")

    assert list(store.list_objects("out/inner")) == []
    assert store.list_directories("out") == []
    assert store.list_directories("") == ["_mem_wal", "out"]


def test_staging_is_not_swept_through_a_link(tmp_path: Path, root: Path, store: ObjectStore) -> None:
    """Without the check, files of others that are older than a day would be removed."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/old").write_bytes(b"theirs")
    os.utime(tmp_path / "other/old", (0, 0))
    (root / ".tmp-staging").symlink_to(tmp_path / "other")

    with pytest.raises(CorruptionError, match="leads out"):
        store.put_if_absent("file", b"mine")

    assert (tmp_path / "other/old").exists()


@pytest.mark.parametrize("uri", ["local", "memory"])
def test_a_larger_object_than_its_kind_may_be_is_not_fetched(root: Path, uri: str) -> None:
    store = open_store(str(root) if uri == "local" else "memory://")
    store.put_if_absent("object", b"12345")

    with pytest.raises(CorruptionError) as caught:
        store.get("object", 4)

    assert (caught.value.facts["size_bytes"], caught.value.facts["max_bytes"]) == (5, 4)
    assert store.get("object", 5) == b"12345"
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("object", b"1234")


def test_a_file_without_end_is_refused_and_its_parts_can_be_read(root: Path, store: ObjectStore) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(MAX_OBJECT_BYTES + 1)

    with pytest.raises(CorruptionError, match="larger"):
        store.get("sparse")
    assert store.get_range("sparse", MAX_OBJECT_BYTES, 1 << 60) == b"\0"


@strange
def test_directories_for_lance_are_searched_for_what_it_would_wait_for(
    root: Path, store: ObjectStore, make: Make
) -> None:
    (root / "_mem_wal/link").symlink_to("region")
    store.require_files(["_mem_wal", "data"])

    make(root / PATH)

    with pytest.raises(CorruptionError) as caught:
        store.require_files(["data", "_mem_wal"])
    assert caught.value.facts["path"] == PATH


def test_a_large_directory_is_searched_again_when_it_has_changed(root: Path) -> None:
    (root / "data").mkdir()
    for number in range(300):
        (root / f"data/{number}").touch()
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))
    store = open_store(str(root), clock=clock)
    store.require_files(["data"])
    store.require_files(["data"])

    os.mkfifo(root / "data/pipe")

    with pytest.raises(CorruptionError, match="neither"):
        store.require_files(["data"])


def test_a_time_that_no_calendar_has_stops_no_listing(root: Path, store: ObjectStore) -> None:
    """Some file systems keep a year of ten digits, at which a listing of all files ended."""
    (root / "file").write_bytes(b"1")
    os.utime(root / "file", (0, 2**55))

    [info] = store.list_objects("")

    assert 2400 < info.modified.year <= 9000
    store.put("file", b"2")


@pytest.mark.parametrize("millis", [-(2**63), 2**63 - 1, 2**64 - 1])
def test_times_beyond_any_calendar_are_its_ends(millis: int) -> None:
    assert at_millis(millis).year in {1970, 9000}
    assert at_millis(0) == datetime.fromtimestamp(0, tz=UTC)

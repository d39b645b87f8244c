"""What only a local disk has: syncing, hidden unfinished files, links, times."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError, ObjectExistsError, UnavailableError
from memwal_core.rng import Rng
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, local_files, open_store
from memwal_core.storage.protocol import ObjectPart
from testkit.rng import seeded_rng

DAY_S = 24 * 3600


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record syncs and links in the order in which they reach the operating system."""
    recorded: list[tuple[str, str]] = []
    sync, link = os.fsync, os.link

    def recording_sync(descriptor: int) -> None:
        recorded.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def recording_link(source: str, target: str) -> None:
        recorded.append(("link", target))
        link(source, target)

    monkeypatch.setattr(os, "fsync", recording_sync)
    monkeypatch.setattr(os, "link", recording_link)
    return recorded


def _store(root: Path, *, fsync: bool = True, rng: Rng | None = None) -> ObjectStore:
    return open_store(str(root), settings=StorageSettings(fsync=fsync), rng=rng)


def _put(store: ObjectStore, path: str, data: bytes) -> None:
    store.put_if_absent(path, data)


def _put_parts(store: ObjectStore, path: str, data: bytes) -> None:
    store.put_parts_if_absent(path, [data[:1], memoryview(data)[1:], b""])


def _put_file(store: ObjectStore, path: str, data: bytes) -> None:
    source = store.staging_directory(path) / "prepared"
    source.write_bytes(data)
    store.put_file_if_absent(path, source)


Put = Callable[[ObjectStore, str, bytes], None]
every_put = pytest.mark.parametrize("put", [_put, _put_parts, _put_file])


@pytest.mark.req("WRT-26")
@every_put
def test_first_durable_write_syncs_file_links_it_and_syncs_all_directories_above(
    root: Path, events: list[tuple[str, str]], put: Put
) -> None:
    put(_store(root), "wal/1/entry", b"data")

    (first, staged), *rest = events
    assert first == "fsync"
    assert Path(staged).parent == root / ".tmp-staging"
    wanted = str(root / "wal/1/entry")
    assert rest == [
        ("link", wanted),
        ("link", wanted),
        ("fsync", str(root / "wal/1")),
        ("fsync", str(root / "wal")),
        ("fsync", str(root)),
        ("fsync", str(root.parent)),
    ]


@pytest.mark.req("WRT-26")
def test_first_write_syncs_directories_that_somebody_else_made(root: Path, events: list[tuple[str, str]]) -> None:
    (root / "wal/1").mkdir(parents=True)

    _store(root).put_if_absent("wal/1/entry", b"data")

    assert ("fsync", str(root / "wal")) in events
    assert ("fsync", str(root)) in events


@pytest.mark.req("WRT-26")
@every_put
def test_write_into_a_known_directory_costs_two_syncs(root: Path, events: list[tuple[str, str]], put: Put) -> None:
    store = _store(root)
    put(store, "wal/1", b"data")
    events.clear()

    put(store, "wal/2", b"data")

    assert [event for event, _ in events] == ["fsync", "link", "fsync"]


@pytest.mark.req("WRT-26")
@every_put
def test_directory_that_was_removed_and_is_made_anew_is_synced_up_to_the_root(
    root: Path, events: list[tuple[str, str]], put: Put
) -> None:
    """S5: a name below a directory that no one synced is gone after a power cut, with everything acknowledged."""
    store = _store(root)
    put(store, "stream/7/1", b"data")
    shutil.rmtree(root / "stream")
    events.clear()

    put(store, "stream/7/1", b"data")

    assert [("fsync", str(root / each)) for each in ("stream/7", "stream", "")] == events[-4:-1]


@every_put
def test_without_fsync_nothing_is_synced(root: Path, events: list[tuple[str, str]], put: Put) -> None:
    put(_store(root, fsync=False), "wal/1", b"data")

    assert {event for event, _ in events} == {"link"}


@pytest.mark.parametrize("rest", [100, local_files._JOINED_BYTES])
def test_parts_of_any_number_and_size_become_one_object(root: Path, monkeypatch: pytest.MonkeyPatch, rest: int) -> None:
    monkeypatch.setattr(local_files, "_MAX_VECTORS", 3)
    parts = [b"", *(bytes([number]) * number for number in range(40)), memoryview(b"-" * rest), b""]
    store = _store(root)

    store.put_parts_if_absent("wal/1", parts)

    assert store.get("wal/1") == b"".join(parts)
    with pytest.raises(ObjectExistsError):
        store.put_parts_if_absent("wal/1", parts[:-2])


@pytest.mark.req("WRT-26")
def test_success_on_equal_bytes_syncs_what_an_earlier_write_may_not_have(
    root: Path, events: list[tuple[str, str]]
) -> None:
    _store(root, fsync=False).put_if_absent("wal/1", b"data")
    store = _store(root)

    store.put_if_absent("wal/1", b"data")

    assert events[-4:] == [("fsync", str(path)) for path in (root / "wal/1", root / "wal", root, root.parent)]


@pytest.mark.req("WRT-26")
def test_syncing_a_directory_reaches_all_files_then_names_then_parents(
    root: Path, events: list[tuple[str, str]]
) -> None:
    store = _store(root)
    (root / "generation/data").mkdir(parents=True)
    (root / "generation/data/1.lance").write_bytes(b"x")

    store.sync_directory("generation")

    below = ("generation/data/1.lance", "generation/data", "generation")
    assert events == [("fsync", str(path)) for path in (*(root / part for part in below), root, root.parent)]


def test_syncing_a_directory_without_fsync_does_nothing(root: Path, events: list[tuple[str, str]]) -> None:
    (root / "generation").mkdir(parents=True)

    _store(root, fsync=False).sync_directory("generation")

    assert events == []


def test_publishing_a_staged_file_copies_nothing(root: Path) -> None:
    store = _store(root)
    source = store.staging_directory("wal/1") / "prepared"
    source.write_bytes(b"data")
    inode = source.stat().st_ino

    store.put_file_if_absent("wal/1", source)

    assert (root / "wal/1").stat().st_ino == inode
    assert (root / "wal/1").stat().st_nlink == 1


def test_unfinished_files_are_never_listed(root: Path) -> None:
    store = _store(root)
    store.put_if_absent("wal/1", b"data")
    (store.staging_directory("wal/2") / "left by a crash").write_bytes(b"half")
    (root / "wal/.tmp-other").write_bytes(b"half")

    assert [found.path for found in store.list_objects("")] == ["wal/1"]
    assert store.list_directories("") == ["wal"]


def test_finished_writes_leave_nothing_staged(root: Path) -> None:
    store = _store(root)
    store.put("hint", b"1")
    store.put_if_absent("wal/1", b"data")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("wal/1", b"other")
    _put_file(store, "wal/2", b"data")

    assert list(store.staging_directory("x").iterdir()) == []


def test_failed_write_leaves_nothing_staged_and_nothing_published(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(root)
    store.put_if_absent("wal/1", b"data")

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(UnavailableError) as raised:
        store.put_if_absent("wal/2", b"data")

    assert "free space" in raised.value.remedy
    assert store.head("wal/2") is None
    assert list(store.staging_directory("x").iterdir()) == []


@pytest.mark.parametrize("call", ["writev", "fsync"])
def test_file_that_cannot_be_written_whole_leaves_nothing_staged(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Each attempt on a full disk left its half, which took the room that somebody made for the next."""
    store = _store(root)
    store.put_if_absent("wal/1", b"data")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(UnavailableError):
            store.put_if_absent("wal/2", b"data")

    assert list(store.staging_directory("x").iterdir()) == []


def test_root_that_vanished_after_a_write_is_not_made_again(root: Path) -> None:
    store = _store(root)
    store.put_if_absent("wal/1", b"data")
    away = root.rename(root.with_name("away"))

    for make_mount_point in (False, True):
        if make_mount_point:
            root.mkdir()
        for attempt in (lambda: store.put_if_absent("wal/2", b"data"), lambda: store.staging_directory("x")):
            with pytest.raises(UnavailableError, match="is gone, or empty"):
                attempt()
        assert not root.exists() or list(root.iterdir()) == []
    root.rmdir()
    away.rename(root)
    store.put_if_absent("wal/2", b"data")
    assert sorted(each.path for each in store.list_objects("wal")) == ["wal/1", "wal/2"]


def test_first_writes_at_once_do_not_take_the_new_directory_for_one_that_is_gone(root, monkeypatch) -> None:
    """The second found no staging directory; by the time it made one, the first had staged and not published."""
    store = _store(root)
    publish, stage = local_files.link_new, local_files.write_new_file

    def publish_after_a_rival(staged: str, target: str) -> bool:
        monkeypatch.setattr(local_files, "link_new", publish)
        monkeypatch.setattr(local_files, "write_new_file", looked_too_early)
        store.put_if_absent("second", b"2")
        return publish(staged, target)

    def looked_too_early(staged: str, parts: Sequence[ObjectPart], *, sync: bool) -> None:
        monkeypatch.setattr(local_files, "write_new_file", stage)
        raise FileNotFoundError(staged)

    monkeypatch.setattr(local_files, "link_new", publish_after_a_rival)
    store.put_if_absent("first", b"1")

    assert (store.get("first"), store.get("second")) == (b"1", b"2")


def test_first_write_of_a_store_removes_only_staged_files_older_than_a_day(root: Path) -> None:
    staging = _store(root).staging_directory("x")
    now = os.stat(staging).st_mtime
    for name, age_s in (("old", DAY_S + 60), ("young", DAY_S - 600)):
        (staging / name).write_bytes(b"half")
        os.utime(staging / name, (now - age_s, now - age_s))

    _store(root).put_if_absent("wal/1", b"data")

    assert [left.name for left in staging.iterdir()] == ["young"]


def test_stores_with_equal_random_sources_do_not_disturb_each_other(root: Path) -> None:
    first = _store(root, rng=seeded_rng(7))
    second = _store(root, rng=seeded_rng(7))
    (first.staging_directory("x") / f"{seeded_rng(7).getrandbits(64):016x}").write_bytes(b"of another store")

    first.put_if_absent("a", b"1")
    second.put_if_absent("b", b"2")

    assert (first.get("a"), first.get("b")) == (b"1", b"2")


def test_etag_differs_after_every_replacement_even_within_one_tick(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(root)
    store.put("object", b"0")
    write = local_files.write_new_file

    def write_in_the_past(path: str, parts: Sequence[ObjectPart], *, sync: bool) -> None:
        write(path, parts, sync=sync)
        os.utime(path, ns=(0, 0))  # The clock of the file system stands still.

    monkeypatch.setattr(local_files, "write_new_file", write_in_the_past)
    etags = []
    for number in range(20):
        found = store.head("object")
        assert found is not None
        assert found.etag is not None
        etags.append(found.etag)
        store.put("object", str(number % 10).encode())

    times = [etag.split("-")[1] for etag in etags]
    assert len(set(times)) == 20


def test_directory_removed_by_a_rival_is_made_again(root: Path) -> None:
    store = _store(root)
    store.put_if_absent("wal/1", b"data")
    store.delete_directory("wal")

    store.put_if_absent("wal/2", b"data")

    assert store.get("wal/2") == b"data"


def test_delete_directory_does_not_follow_links_out_of_the_table(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    store = _store(root)
    store.put_if_absent("wal/1", b"data")
    (root / "wal/link").symlink_to(outside)

    assert [found.path for found in store.list_objects("wal")] == ["wal/1"]
    assert store.delete_directory("wal") == 1

    assert (outside / "precious").read_bytes() == b"x"


def test_path_below_a_file_is_refused_and_reads_as_missing(root: Path) -> None:
    store = _store(root)
    store.put_if_absent("file", b"x")

    assert store.head("file/below") is None
    for put in (store.put, store.put_if_absent):
        with pytest.raises(InvalidRequestError):
            put("file/below", b"x")
    assert store.get("file") == b"x"


def test_opening_creates_nothing(root: Path) -> None:
    store = _store(root)

    assert list(store.list_objects("")) == []
    assert store.head("x") is None
    assert not root.exists()


def test_representation_names_root_and_durability(root: Path) -> None:
    assert repr(_store(root)) == f"LocalStore({str(root)!r}, fsync=True)"

"""Manifests that a power cut tore: found, told in true words, and set aside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.history.torn import find_torn_versions, set_torn_versions_aside
from memwal_core.errors import ConflictError, CorruptionError
from memwal_core.format.paths import table_manifest_path
from memwal_core.storage import open_store
from testkit.tables.people import make_people_table, people

TEARS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "garbage": lambda whole: bytes(each ^ 0x5A for each in whole),
    "zeros": lambda whole: bytes(len(whole)),
    "zeros before the footer": lambda whole: bytes(len(whole) - 16) + whole[-16:],
    "zeros in its end": lambda whole: whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
}


def torn_table(uri: str, tear: Callable[[bytes], bytes], versions: int = 1) -> BaseTable:
    """Make a table and tear its newest versions."""
    make_people_table(uri, rows=people(1, 2))
    for number in range(versions + 1):
        lance.dataset(uri).insert(people(10 + number))
    table = BaseTable.open(uri)
    newest = table.dataset().version
    for version in range(newest - versions + 1, newest + 1):
        path = Path(uri, table_manifest_path(version))
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(tear(whole))
    return table


@pytest.mark.parametrize("kind", TEARS)
def test_torn_newest_manifest_is_named_by_whoever_opens_the_table(tmp_path: Path, kind: str) -> None:
    """S5: "the store did not answer", for ever; zeros were opened as an empty table of version 0."""
    uri = str(tmp_path / "t")
    torn_table(uri, TEARS[kind])

    with pytest.raises(CorruptionError, match="power cut") as caught:
        BaseTable.open(uri)

    assert caught.value.facts["file"] == table_manifest_path(4)
    assert caught.value.facts["newest_whole"] == 3
    assert "memwal repair" in caught.value.remedy


@pytest.mark.parametrize("kind", TEARS)
def test_set_aside_manifests_are_kept_and_the_newest_whole_version_takes_commits(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "t")
    table = torn_table(uri, TEARS[kind], versions=2)
    found = find_torn_versions(table.store)
    assert ([each.version for each in found.torn], found.newest_whole) == ([5, 4], 3)
    content = [Path(uri, each.path).read_bytes() for each in found.torn]

    copies = set_torn_versions_aside(table.store, found, "_mem_wal/_backup/one")

    assert [Path(uri, copy).read_bytes() for copy in copies] == content
    assert find_torn_versions(table.store).torn == ()
    assert (table.dataset().version, table.dataset().count_rows()) == (3, 3)
    lance.dataset(uri).insert(people(99))
    assert (table.dataset().version, table.dataset().count_rows()) == (4, 4)


def test_setting_aside_is_finished_by_a_repeat(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = torn_table(uri, TEARS["empty"], versions=2)
    found = find_torn_versions(table.store)
    table.store.put_if_absent("_mem_wal/_backup/one/" + os.path.basename(found.torn[0].path), b"")
    table.store.delete(found.torn[0].path)

    set_torn_versions_aside(table.store, found, "_mem_wal/_backup/one")

    assert table.dataset().version == 3


def test_removal_of_a_torn_manifest_is_on_the_disk_when_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: a power cut after the repair brought the torn manifest back."""
    uri = str(tmp_path / "t")
    torn_table(uri, TEARS["zeros"])
    store = open_store(uri)
    done: list[tuple[str, str]] = []
    sync, unlink = os.fsync, os.unlink

    def fsync(descriptor: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def remove(path: str) -> None:
        done.append(("remove", path))
        unlink(path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", remove)
    set_torn_versions_aside(store, find_torn_versions(store), "aside")

    removed = done.index(("remove", f"{uri}/{table_manifest_path(4)}"))
    assert ("sync", f"{uri}/_versions") in done[removed:]


def test_whole_manifest_is_never_set_aside(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = torn_table(uri, TEARS["empty"])
    found = find_torn_versions(table.store)
    path = Path(uri, table_manifest_path(4))
    path.unlink()
    lance.dataset(uri).insert(people(50))

    with pytest.raises(ConflictError):
        set_torn_versions_aside(table.store, found, "_mem_wal/_backup/one")

    assert table.dataset().version == 4


def test_table_without_a_whole_version_is_left_as_it_is(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(1), uri)
    path = Path(uri, table_manifest_path(1))
    path.write_bytes(b"")
    store = open_store(uri)

    with pytest.raises(CorruptionError, match="no version"):
        set_torn_versions_aside(store, find_torn_versions(store), "_mem_wal/_backup/one")

    assert path.exists()
    with pytest.raises(CorruptionError, match="torn"):
        BaseTable.open(uri)

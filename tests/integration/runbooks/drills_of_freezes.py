"""Drills of what freezes a table: its history changed, or a person wanted it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import lance

from memwal_core.format.paths import MEM_WAL_DIRECTORY, RECORD_DIRECTORY, RESERVATIONS_DIRECTORY, manifest_path
from memwal_core.register import FIRST_VERSION
from testkit.tables.people import people
from tests.integration.runbooks.scene import Scene, drill

_FROZEN = 8


def _frozen(scene: Scene) -> None:
    """Run the cycle, as the scheduler does: it finds that the table must be frozen."""
    scene.run("memwal merge $TABLE")
    assert scene.table.opened.freezes.active(), "no job noticed"


@drill("frozen-by-hand")
def somebody_wanted_it(scene: Scene) -> Iterator[None]:
    scene.run("memwal freeze $TABLE --reason TEXT")
    yield
    scene.follow("memwal merge $TABLE", ends=_FROZEN)
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")


@drill("address-changed")
def table_was_moved(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(5, name="waits")
    scene.uri = str(shutil.move(scene.path, scene.path.with_name("moved")))
    _frozen(scene)
    yield
    scene.follow("memwal relocate $TABLE --reason TEXT")


@drill("address-changed")
def table_is_mounted_elsewhere(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.uri = str(shutil.move(scene.path, scene.path.with_name("mounted")))
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice accept-address --reason TEXT")


def _newest_version_gone(scene: Scene) -> Path:
    scene.run("memwal merge $TABLE")
    base = scene.table.base
    return scene.path / base.manifests.locate(base.dataset().version).path


@drill("table-went-back")
def manifest_is_brought_back(scene: Scene) -> Iterator[None]:
    back = scene.set_aside(_newest_version_gone(scene))
    _frozen(scene)
    yield
    back()
    scene.follow("memwal thaw $TABLE --choice restore-progress --cause progress-went-back --reason TEXT")
    scene.follow("memwal thaw $TABLE --choice accept --cause table-went-back --reason TEXT")


@drill("table-went-back")
def commits_are_gone_but_not_their_generations(scene: Scene) -> Iterator[None]:
    _newest_version_gone(scene).unlink()
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice merge-again --cause progress-went-back --reason TEXT")
    scene.follow("memwal thaw $TABLE --choice accept --cause table-went-back --reason TEXT")


@drill("progress-lost")
def table_was_restored(scene: Scene) -> Iterator[None]:
    before = scene.table.base.dataset().version
    scene.run("memwal merge $TABLE")
    lance.dataset(scene.uri, version=before).restore()
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice merge-again")


@drill("progress-lost")
def progress_was_replaced_and_the_rows_stayed(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(7, name="later")
    scene.vandal.details(lambda details: replace(details, merged_generations=MappingProxyType({})))
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice restore-progress")


@drill("progress-lost")
def table_was_overwritten_by_mistake(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    good = scene.table.base.dataset().version
    scene.put(5, name="waits")
    lance.write_dataset(people(77), scene.uri, mode="overwrite")
    _frozen(scene)
    yield
    scene.evaluate("lance.dataset(uri, version=V).restore()", V=good)
    scene.follow("memwal thaw $TABLE --choice restore-progress")


@drill("progress-lost")
def table_was_restored_on_purpose(scene: Scene) -> Iterator[None]:
    before = scene.table.base.dataset().version
    scene.run("memwal merge $TABLE")
    lance.dataset(scene.uri, version=before).restore()
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice discard-generations")
    scene.rows = {1: "p1", 2: "p2"}


def _overwritten_with_rows_waiting(scene: Scene) -> None:
    scene.run("memwal merge $TABLE")
    scene.put(5, name="waits")
    lance.write_dataset(people(77), scene.uri, mode="overwrite")
    _frozen(scene)


@drill("progress-lost")
def table_was_overwritten_on_purpose(scene: Scene) -> Iterator[None]:
    _overwritten_with_rows_waiting(scene)
    yield
    scene.follow("memwal enable $TABLE")
    scene.follow("memwal thaw $TABLE --choice discard-generations")
    scene.rows = {77: "p77"}


@drill("progress-lost")
def table_was_overwritten_and_what_waits_is_wanted(scene: Scene) -> Iterator[None]:
    _overwritten_with_rows_waiting(scene)
    yield
    scene.follow("memwal enable $TABLE")
    scene.follow("memwal thaw $TABLE --choice restore-progress")
    scene.rows = {5: "waits", 77: "p77"}


def _begins_again(scene: Scene) -> None:
    scene.run("memwal merge $TABLE")
    shutil.rmtree(scene.region_path)
    for mark in (scene.path / RESERVATIONS_DIRECTORY).rglob("*.created"):
        mark.unlink()
    scene.put(5, name="anew")


@drill("region-began-again")
def region_was_deleted_and_made_anew(scene: Scene) -> Iterator[None]:
    _begins_again(scene)
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice merge-again --dry-run")
    scene.follow("memwal thaw $TABLE --choice merge-again --reason TEXT")


@drill("region-began-again")
def old_copy_was_put_back(scene: Scene) -> Iterator[None]:
    old = scene.path.with_name("old")
    shutil.copytree(scene.path / MEM_WAL_DIRECTORY, old)
    scene.put(5, name="newer")
    scene.run("memwal merge $TABLE")
    shutil.rmtree(scene.path / MEM_WAL_DIRECTORY)
    shutil.move(old, scene.path / MEM_WAL_DIRECTORY)
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice discard-generations --reason TEXT")


@drill("region-began-again")
def clock_was_set_back(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    shutil.rmtree(scene.path / RECORD_DIRECTORY)
    made = scene.path / manifest_path(scene.region, FIRST_VERSION)
    os.utime(made, times=(made.stat().st_mtime + 3600,) * 2)
    scene.put(5, name="waits")
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")


@drill("region-vanished")
def region_is_brought_back(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(5, name="waits")
    scene.run("memwal merge $TABLE --dry-run")
    back = scene.set_aside(scene.region_path)
    _frozen(scene)
    yield
    back()
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")


@drill("region-vanished")
def region_is_given_up(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    rows = dict(scene.rows)
    scene.put(5, name="lost")
    shutil.rmtree(scene.region_path)
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")
    scene.rows = rows


def _newest_manifest(scene: Scene) -> Path:
    manifest = scene.table.opened.manifests.load(scene.region)
    return scene.path / manifest_path(scene.region, manifest.version)


@drill("region-went-back")
def region_manifests_are_brought_back(scene: Scene) -> Iterator[None]:
    scene.put(5, name="waits")
    scene.run("memwal merge $TABLE")
    back = scene.set_aside(_newest_manifest(scene))
    _hint(scene).unlink()
    _frozen(scene)
    yield
    back()
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")


@drill("region-went-back")
def region_manifests_are_gone_and_the_wal_is_not(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(5, name="replayed")
    scene.run("memwal snapshot $TABLE")
    _newest_manifest(scene).unlink()
    _hint(scene).unlink(missing_ok=True)
    _frozen(scene)
    yield
    scene.follow("memwal thaw $TABLE --choice accept --reason TEXT")
    scene.put(6, name="after the replay")


def _hint(scene: Scene) -> Path:
    return scene.region_path / "manifest" / "version_hint.json"


def _versions_of_the_record(scene: Scene) -> list[Path]:
    """Return the versions of the maintenance record, the newest first."""
    found = [each for each in (scene.path / RECORD_DIRECTORY).iterdir() if each.name[0] in "01"]
    return sorted(found, key=lambda each: each.stem[::-1], reverse=True)


@drill("record-unreadable", slow=False)
def newest_record_is_damaged(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    scene.put(5, name="waits")
    scene.run("memwal merge $TABLE")
    newest = _versions_of_the_record(scene)[0]
    newest.write_bytes(b"no json")
    scene.follow("memwal merge $TABLE", ends=5)
    yield
    scene.set_aside(newest)


@drill("record-unreadable")
def no_record_can_be_read(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    for version in _versions_of_the_record(scene):
        version.write_bytes(b"no json")
    yield
    scene.follow("memwal history $TABLE")
    scene.set_aside(scene.path / RECORD_DIRECTORY)

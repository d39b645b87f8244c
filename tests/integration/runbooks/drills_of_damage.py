"""Drills of damaged, missing and wrong files and rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa

from memwal_core.format.paths import (
    LANCE_WAL_SUFFIX,
    generation_path,
    manifest_directory,
    manifest_path,
    version_hint_path,
    wal_entry_path,
)
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.register import hint_bytes
from testkit.tables.people import people
from tests.integration.runbooks.book import Book
from tests.integration.runbooks.scene import Scene, drill


def _generation(scene: Scene, number: int) -> Path:
    """Return the directory of a generation, from 1."""
    recorded = scene.table.opened.manifests.load(scene.region).flushed_generations
    [path] = [each.path for each in recorded if each.generation == number]
    return scene.path / generation_path(scene.region, path)


def _let_jobs_go_on(scene: Scene) -> None:
    scene.follow("memwal thaw $TABLE --cause by-hand --choice accept --reason TEXT")


@drill("generation-hole", slow=False)
def generation_was_deleted(scene: Scene) -> Iterator[None]:
    shutil.rmtree(_generation(scene, 2))
    yield
    assert scene.table.opened.freezes.active(), "the cycle would go on meanwhile"
    scene.follow("memwal repair $TABLE --dry-run")
    scene.follow("memwal repair $TABLE")
    _let_jobs_go_on(scene)


@drill("generation-hole")
def flush_failed_and_the_next_one_did_not(scene: Scene) -> Iterator[None]:
    recorded = scene.table.opened.manifests.load(scene.region).flushed_generations
    scene.vandal.manifest(scene.region, flushed_generations=recorded[1:])
    yield
    scene.follow("memwal repair $TABLE --dry-run")
    scene.follow("memwal repair $TABLE")
    _let_jobs_go_on(scene)


@drill("generation-hole")
def nothing_can_rebuild_it(scene: Scene) -> Iterator[None]:
    shutil.rmtree(_generation(scene, 1))
    (scene.path / wal_entry_path(scene.region, 1, LANCE_WAL_SUFFIX)).unlink()
    yield
    scene.follow("memwal repair $TABLE --dry-run", ends=5)
    scene.follow("memwal repair $TABLE", ends=5)
    scene.values["REGION:GENERATION"] = f"{scene.region}:1"
    scene.follow("memwal repair $TABLE --accept-loss REGION:GENERATION")
    _let_jobs_go_on(scene)
    scene.rows[1] = "p1"
    del scene.rows[3]


@drill("corrupt-region-manifest", slow=False)
def manifest_was_cut_off(scene: Scene) -> Iterator[None]:
    newest = scene.table.opened.manifests.load(scene.region).version
    path = scene.path / manifest_path(scene.region, newest)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    yield
    path.write_bytes(whole)
    _let_jobs_go_on(scene)


@drill("corrupt-region-manifest")
def manifest_has_the_bytes_of_the_one_before_it(scene: Scene) -> Iterator[None]:
    newest = scene.table.opened.manifests.load(scene.region).version
    path = scene.path / manifest_path(scene.region, newest)
    whole = path.read_bytes()
    path.write_bytes((scene.path / manifest_path(scene.region, newest - 1)).read_bytes())
    yield
    path.write_bytes(whole)
    _let_jobs_go_on(scene)


@drill("corrupt-region-manifest")
def data_file_of_a_generation_is_zeroed(scene: Scene) -> Iterator[None]:
    [file] = (_generation(scene, 1) / "data").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal repair $TABLE --dry-run")
    scene.follow("memwal repair $TABLE")
    _let_jobs_go_on(scene)
    scene.follow("memwal merge $TABLE")


@drill("corrupt-region-manifest")
def lifecycle_rule_took_some_of_its_files(scene: Scene) -> Iterator[None]:
    for name in ("_versions", "_transactions"):
        shutil.rmtree(_generation(scene, 1) / name)
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal repair $TABLE --dry-run")
    scene.follow("memwal repair $TABLE")
    _let_jobs_go_on(scene)
    scene.follow("memwal merge $TABLE")


@drill("corrupt-region-manifest")
def middle_of_the_manifests_is_gone(scene: Scene) -> Iterator[None]:
    newest = scene.table.opened.manifests.load(scene.region).version
    back = scene.set_aside(scene.path / manifest_path(scene.region, newest - 1))
    hint = version_hint_path(manifest_directory(scene.region))
    scene.table.base.store.put(hint, hint_bytes(newest - 2))
    yield
    back()
    _let_jobs_go_on(scene)


@drill("quarantined-generations")
def rows_are_right_after_all(scene: Scene) -> Iterator[None]:
    QuarantineStore(scene.table.base.store).add(Quarantined(scene.region, 2, ("user_suite",), "too many"))
    yield
    scene.values["GENERATION"] = "2"
    scene.follow("memwal checks $TABLE --release $REGION:$GENERATION")
    scene.follow("memwal merge $TABLE")


@drill("quarantined-generations")
def rows_are_wrong_and_written_anew(scene: Scene) -> Iterator[None]:
    QuarantineStore(scene.table.base.store).add(Quarantined(scene.region, 1, ("user_suite",), "impossible ages"))
    yield
    scene.put(1, 3, name="right")
    scene.values["GENERATION"] = "1"
    scene.follow("memwal checks $TABLE --release $REGION:$GENERATION")
    scene.follow("memwal merge $TABLE")


def _appended(scene: Scene) -> None:
    scene.run("memwal merge $TABLE")
    lance.write_dataset(people(3, name="appended"), scene.uri, mode="append")
    scene.rows[3] = "appended"
    assert scene.run("memwal verify $TABLE").exception is not None


@drill("duplicate-keys")
def another_client_appended(scene: Scene) -> Iterator[None]:
    _appended(scene)
    yield
    scene.follow("memwal repair $TABLE --duplicates --dry-run")
    scene.follow("memwal repair $TABLE --duplicates")


@drill("duplicate-keys")
def one_commit_wrote_both_copies(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    both = pa.concat_tables([people(42, name="right"), people(42, name="wrong")])
    lance.write_dataset(both, scene.uri, mode="append")
    scene.rows[42] = "right"
    assert scene.run("memwal verify $TABLE").exception is not None
    yield
    scene.follow("memwal repair $TABLE --duplicates --dry-run", ends=5)
    scene.evaluate("lance.dataset(uri).delete(\"id = 42 AND name = 'wrong'\")")


@drill("check-failed", spark=True)
def another_client_deleted_rows(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    good = scene.table.base.dataset().version
    lance.dataset(scene.uri).delete("id = 3")
    scene.run("memwal quality $TABLE")
    yield
    scene.evaluate("lance.dataset(uri, version=V).restore()", V=good)
    scene.follow("memwal status $TABLE")


@drill("check-failed", spark=True)
def another_client_deleted_rows_on_purpose(scene: Scene) -> Iterator[None]:
    scene.run("memwal merge $TABLE")
    lance.dataset(scene.uri).delete("id = 3")
    scene.run("memwal quality $TABLE")
    yield
    scene.follow("memwal checks $TABLE", ends=5)
    scene.follow("memwal thaw $TABLE --choice accept --cause check-failed --reason TEXT")
    del scene.rows[3]


@drill("check-failed", spark=True)
def another_client_loaded_a_key_twice(scene: Scene) -> Iterator[None]:
    _appended(scene)
    scene.run("memwal quality $TABLE")
    yield
    duplicates = replace(scene, book=Book("duplicate-keys"))
    duplicates.follow("memwal repair $TABLE --duplicates")
    duplicates.follow("memwal verify $TABLE")
    duplicates.follow("memwal thaw $TABLE --choice accept --cause duplicate-keys --reason TEXT")

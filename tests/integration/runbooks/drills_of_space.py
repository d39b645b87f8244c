"""Drills of bytes, versions and fragments that stay."""

from __future__ import annotations

from collections.abc import Iterator

import lance

from memwal_core.coordination.ledger import RunOutcome
from testkit.tables.people import people
from tests.integration.runbooks.scene import Scene, drill


def _collect(scene: Scene) -> None:
    scene.follow("memwal gc $TABLE --yes")
    scene.age(scene.path, hours=2)
    scene.follow("memwal gc $TABLE --yes")


def _merged_long_ago(scene: Scene) -> None:
    scene.environment["MEMWAL_COMPACT__KEEP_VERSIONS"] = "1"
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    scene.run("memwal compact $TABLE --remove-versions --force")
    scene.age(scene.path, days=30)


@drill("garbage")
def nothing_collects(scene: Scene) -> Iterator[None]:
    _merged_long_ago(scene)
    yield
    scene.environment.clear()
    _collect(scene)


@drill("garbage")
def collection_ended_before_its_grace_period(scene: Scene) -> Iterator[None]:
    _merged_long_ago(scene)
    scene.run("memwal gc $TABLE --yes")
    scene.age(scene.path, hours=2)
    yield
    scene.environment = {"MEMWAL_GC__GRACE_S": "0"}
    scene.follow("memwal gc $TABLE --yes --wait")


@drill("kept")
def tag_needs_what_was_merged(scene: Scene) -> Iterator[None]:
    lance.dataset(scene.uri).tags.create("before", scene.table.base.dataset().version)
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    yield
    lance.dataset(scene.uri).tags.delete("before")
    scene.follow("memwal compact $TABLE --remove-versions")
    scene.follow("memwal gc $TABLE --yes")


@drill("kept")
def index_has_not_caught_up(scene: Scene) -> Iterator[None]:
    lance.dataset(scene.uri).create_scalar_index("id", "BTREE", name="id_idx")
    scene.run("memwal merge $TABLE")
    scene.age(scene.path, days=30)
    yield
    scene.follow("memwal catchup $TABLE")


@drill("base-fragments")
def every_merge_adds_one(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_STATUS__BASE_FRAGMENTS_WARN": "2"}
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal compact $TABLE")


@drill("base-fragments")
def another_client_appends_little_by_little(scene: Scene) -> Iterator[None]:
    for key in range(100, 120):
        lance.write_dataset(people(key, name="loaded"), scene.uri, mode="append")
        scene.rows[key] = "loaded"
    yield
    scene.follow("memwal compact $TABLE")


@drill("base-fragments")
def too_few_neighbours_are_small(scene: Scene) -> Iterator[None]:
    scene.environment |= {"MEMWAL_STATUS__BASE_FRAGMENTS_WARN": "2", "MEMWAL_COMPACT__DELETION_THRESHOLD": "1"}
    scene.put(5, name="new")
    scene.run("memwal merge $TABLE")
    yield
    scene.follow("memwal compact $TABLE", ends=3)
    scene.follow("memwal compact $TABLE --force")


def _make_old_versions(scene: Scene) -> None:
    scene.environment["MEMWAL_COMPACT__KEEP_VERSIONS"] = "2"
    for key in range(2):
        scene.put(20 + key, name="later")
        scene.run("memwal merge $TABLE")
    scene.age(scene.path / "_versions", days=30)


@drill("base-versions")
def nothing_removes_versions(scene: Scene) -> Iterator[None]:
    _make_old_versions(scene)
    yield
    scene.follow("memwal compact $TABLE --remove-versions")
    _collect(scene)


@drill("base-versions")
def cycle_was_told_to_keep_them(scene: Scene) -> Iterator[None]:
    _make_old_versions(scene)
    scene.run("memwal maintain $TABLE --keep-versions")
    yield
    scene.follow("memwal maintain $TABLE")
    scene.age(scene.path, hours=2)
    scene.run("memwal maintain $TABLE")


@drill("base-versions")
def compactions_kept_failing(scene: Scene) -> Iterator[None]:
    _make_old_versions(scene)
    for _ in range(3):
        scene.ran("compact", outcome=RunOutcome.FAILED, error="UnavailableError")
    scene.run("memwal maintain $TABLE")
    yield
    scene.follow("memwal history $TABLE --job compact")
    scene.follow("memwal compact $TABLE --remove-versions")
    _collect(scene)

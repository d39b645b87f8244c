"""What a power cut may leave is what the model says: everything synced, and any part of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from testkit.powercut.disk import NO_LOSSES, Disk, Losses
from testkit.powercut.operations import Mark, Names, Operation, Recording, Resize, Slot, Sync, SyncClass, Write
from testkit.rng import seeded_rng

State = tuple[tuple[str, bytes | None], ...]
ALL_LOST = Losses(1, 1, 1)
SOME_LOST = Losses(0.5, 0.5, 0.5)


class Scene:
    """A recording made by hand: inode 1 is a directory, and on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self.name((0, "d"), 1)
        self.sync(0)

    def name(self, slot: Slot, inode: int | None, *more: tuple[Slot, int | None]) -> None:
        self.operations.append(Names(((slot, inode), *more)))

    def write(self, inode: int, data: bytes, offset: int = 0) -> None:
        self.operations.append(Write(inode, offset, data))

    def sync(self, inode: int) -> None:
        self.operations.append(Sync(inode, len(self.operations)))

    def states(self, losses: Losses = SOME_LOST, without: Iterable[SyncClass] = (), tries: int = 60) -> set[State]:
        recording = Recording(str(self.root), tuple(self.operations), frozenset({0, 1}), {2: frozenset({"d/x"})})
        found = set()
        for seed in range(tries):
            Disk(recording, len(self.operations), tuple(without)).build(seeded_rng(seed), losses)
            paths = sorted(path for path in self.root.rglob("*") if path.name != "d")
            found.add(tuple((str(path.relative_to(self.root)), path.read_bytes()) for path in paths))
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "table")


def test_what_is_synced_stays_whatever_is_lost(scene: Scene) -> None:
    scene.write(2, b"abc")
    scene.sync(2)
    scene.name((1, "x"), 2)
    scene.sync(1)
    assert scene.states(ALL_LOST) == {(("d/x", b"abc"),)}


def test_sync_of_a_file_keeps_no_name(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.write(2, b"abc")
    scene.sync(2)
    assert scene.states() == {(), (("d/x", b"abc"),)}


def test_sync_of_a_directory_keeps_no_bytes_of_its_files(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.write(2, b"abcd")
    scene.sync(1)
    contents = {state[0][1] for state in scene.states(ALL_LOST, tries=200)}
    assert contents == {b"", b"a", b"ab", b"abc", b"abcd", b"\0\0\0\0"}


def test_pages_of_a_file_survive_one_by_one(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.write(2, b"a" * 4096 + b"b" * 100)
    scene.sync(1)
    contents = {state[0][1] for state in scene.states(ALL_LOST, tries=200)}
    assert {b"\0" * 4096 + b"b" * 100, b"a" * 4096 + b"\0" * 100} <= contents


def test_bytes_written_after_the_sync_may_be_lost_and_those_before_it_not(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.sync(1)
    scene.write(2, b"abc")
    scene.sync(2)
    scene.write(2, b"de", offset=3)
    contents = {state[0][1] for state in scene.states(ALL_LOST, tries=200)}
    assert contents == {b"abc", b"abcd", b"abcde", b"abc\0\0"}


def test_file_cut_to_a_size_may_still_have_its_bytes(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.write(2, b"abc")
    scene.sync(2)
    scene.sync(1)
    scene.operations.append(Resize(2, 1))
    assert {state[0][1] for state in scene.states(ALL_LOST, tries=200)} == {b"abc", b"a"}


def test_rename_takes_one_name_and_gives_the_other_or_neither(scene: Scene) -> None:
    scene.name((0, "old"), 2)
    scene.sync(0)
    scene.name((0, "old"), None, ((1, "x"), 2))
    assert scene.states() == {(("old", b""),), (("d/x", b""),)}
    scene.sync(1)
    assert scene.states(ALL_LOST) == {(("d/x", b""),)}


def test_replaced_file_is_the_old_or_the_new_one(scene: Scene) -> None:
    for inode, data in ((2, b"one"), (3, b"two")):
        scene.write(inode, data)
        scene.sync(inode)
        scene.name((1, "x"), inode)
        if inode == 2:
            scene.sync(1)
    assert scene.states() == {(("d/x", b"one"),), (("d/x", b"two"),)}


def test_names_of_different_files_survive_independently(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.name((1, "y"), 3)
    assert {tuple(name for name, _ in state) for state in scene.states()} == {(), ("d/x",), ("d/y",), ("d/x", "d/y")}


def test_removals_of_one_directory_survive_in_their_order(scene: Scene) -> None:
    for inode, name in ((2, "x"), (3, "y")):
        scene.name((1, name), inode)
    scene.sync(1)
    for name in ("x", "y"):
        scene.name((1, name), None)
    assert {tuple(name for name, _ in state) for state in scene.states()} == {("d/x", "d/y"), ("d/y",), ()}


def test_file_with_two_names_stays_one_file(scene: Scene) -> None:
    scene.name((0, "x"), 2)
    scene.name((1, "x"), 2)
    scene.states(NO_LOSSES, tries=1)
    assert (scene.root / "x").samefile(scene.root / "d" / "x")


def test_everything_before_the_machine_ran_on_for_long_stays(scene: Scene) -> None:
    scene.name((1, "x"), 2)
    scene.write(2, b"abc")
    scene.operations.append(Mark({"settled": True}))
    scene.name((1, "x"), None)
    assert scene.states() == {(("d/x", b"abc"),), ()}


@pytest.mark.parametrize("dropped", [SyncClass.TABLE_DATA, SyncClass.TABLE_DIRECTORY])
def test_dropped_syncs_keep_nothing(scene: Scene, dropped: SyncClass) -> None:
    scene.write(2, b"abc")
    scene.sync(2)
    scene.name((1, "x"), 2)
    scene.sync(1)
    assert scene.states(without=[SyncClass.TABLE_MANIFEST]) == {(("d/x", b"abc"),)}
    assert len(scene.states(without=[dropped])) > 1

"""`memwal tables`: every MemWAL table below a place is found, whatever else is there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import lance
import pytest
from typer.testing import CliRunner, Result

from memwal_core.cli.app import app
from memwal_core.errors import ObjectNotFoundError
from memwal_core.registry import parse_registry
from memwal_core.registry.discovery import Bounds, discover
from testkit.hands.clients import LANCEDB, PYLANCE
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tables, each made by another client, and one without MemWAL."""
    root = tmp_path_factory.mktemp("database")
    make_people_table(str(root / "ours.lance"), rows=people(1, 2), buckets=2)
    PYLANCE.make(str(root / "deep/er/native.lance"))
    write_native_generations(str(root / "deep/er/native.lance"), native_region_id(1), [[Put(people(1))]])
    LANCEDB.make(str(root / "client.lance"))
    lance.write_dataset(people(1), str(root / "plain.lance"))
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root"))


def run(*arguments: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, ["tables", *map(str, arguments)], env={"COLUMNS": str(columns)})


def test_tables_of_every_client_are_found_with_how_they_are_divided(root: Path) -> None:
    seen = discover(str(root))

    found = {each.uri.removeprefix(f"{root}/"): each for each in seen.tables}
    assert {name: (each.rows, each.key, each.sharding, each.regions) for name, each in found.items()} == {
        "ours.lance": (2, ("id",), "bucket(id, 2)", 0),
        "deep/er/native.lance": (0, ("id",), "unsharded", 1),
        "client.lance": (0, ("id",), "unsharded", 0),
    }
    assert seen.plain == (str(root / "plain.lance"),)
    assert seen.problems == ()


def test_table_itself_is_found_and_its_inside_is_not_searched(root: Path) -> None:
    seen = discover(str(root / "deep/er/native.lance"))

    assert [each.uri for each in seen.tables] == [str(root / "deep/er/native.lance")]
    assert seen.directories == 1


def test_what_is_hostile_or_broken_is_listed_and_hides_nothing(root: Path) -> None:
    """One bad directory must not keep the others from being found; nothing may block, loop or leave the root."""
    broken, lost, halved = root / "broken.lance", root / "lost.lance", root / "halved.lance"
    for each in (broken, lost, halved):
        shutil.copytree(root / "deep/er/native.lance", each)
    for manifest in (broken / "_versions").glob("*.manifest"):
        manifest.write_bytes(os.urandom(300))
    lance.write_dataset(people(1), str(lost), mode="overwrite")  # The MemWAL index is gone, its regions are not.
    shutil.rmtree(halved / "_versions")
    (root / "loop").symlink_to(root)
    (root / "away").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    (root / "esc\x1b[2Jape.lance").mkdir()
    (root / "50%.lance").mkdir()
    os.mkdir(os.fsencode(str(root)) + b"/\xff\xfe.lance")

    seen = discover(str(root))

    assert len(seen.tables) == 3
    problems = {each.uri.removeprefix(f"{root}").lstrip("/"): each.what for each in seen.problems}
    assert problems["halved.lance"] == "it has regions but no base table: its versions are gone"
    assert "its MemWAL index is gone" in problems["lost.lance"]
    assert {"loop", "away", "50%.lance", "broken.lance"} <= problems.keys()
    assert sum(each.what.endswith("its name cannot be shown") for each in seen.problems) == 2
    shown = run(root)
    assert shown.exit_code == 6
    assert "\x1b[2J" not in shown.output
    assert all(line.isprintable() for line in shown.output.splitlines())


def test_search_ends_at_its_bounds_and_says_what_it_left(root: Path) -> None:
    shallow = discover(str(root), bounds=Bounds(depth=1))
    assert [Path(each.uri).name for each in shallow.tables] == ["client.lance", "ours.lance"]
    assert [each.what for each in shallow.problems] == ["1 directories are deeper than 1 levels"]
    for number in range(30):
        (root / f"empty{number}").mkdir()

    few = discover(str(root), bounds=Bounds(directories=10))

    assert few.directories == 10
    assert any(each.what.startswith("after 10 directories 25 or more") for each in few.problems)


def test_place_that_does_not_exist_is_an_error(root: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        discover(str(root / "nowhere"))


def test_command_registers_what_it_found_once(root: Path) -> None:
    file = root / "tables.toml"
    planned = run(root, "--register", file, "--dry-run", "--json")
    assert json.loads(planned.stdout)["registered"]["dry_run"] is True
    assert not file.exists()

    first, again = run(root, "--register", file), run(root, "--register", file, "--json")

    assert (first.exit_code, again.exit_code) == (0, 0)
    assert {table.name for table in parse_registry(file.read_text(), str(file)).tables} == {"ours", "native", "client"}
    assert json.loads(again.stdout)["registered"]["added"] == []
    assert len(json.loads(again.stdout)["registered"]["known"]) == 3


def test_place_without_tables_ends_with_3(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 3


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_output_fits_the_terminal_and_breaks_no_word(root: Path, columns: int) -> None:
    shown = run(root, columns=columns).stdout.partition("\n")[2]

    assert max(len(line) for line in shown.splitlines()) <= columns
    for word in ("deep/er/native.lance", "ours.lance", "bucket(id,", "unsharded", "client.lance"):
        assert word in shown

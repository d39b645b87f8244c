"""Adding tables to a registry: unique names, nobody's bytes changed, never half a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.registry import Registry, entries, parse_registry
from memwal_core.registry.entries import plan_registration, register_tables

OTHERS = """# Written by hand; the comment stays.
exclude = ["*/scratch/*"]

[[tables]]
name = "orders"
uri = "s3://lake/orders.lance"
every_minutes = 30   # not the default
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tables.toml"
    path.write_text(OTHERS)
    return path


def names(registry: Registry) -> dict[str, str]:
    return {table.name: table.uri for table in registry.tables}


def test_entries_come_after_what_others_wrote_which_stays_byte_for_byte(file: Path) -> None:
    file.chmod(0o640)
    done = register_tables(str(file), ["s3://lake/a/people.lance", "S3://lake/orders.lance/"], connection="lake")

    text = file.read_text()
    registry = parse_registry(text, str(file))
    assert text.startswith(OTHERS)
    assert names(registry) == {"orders": "s3://lake/orders.lance", "people": "s3://lake/a/people.lance"}
    assert registry.find("people").connection == "lake"
    assert (registry.find("orders").every_minutes, done.known) == (30, ("s3://lake/orders.lance",))
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == [file.name]


def test_ends_of_lines_of_others_stay(file: Path) -> None:
    before = OTHERS.replace("\n", "\r\n").encode()
    file.write_bytes(before)

    register_tables(str(file), ["s3://lake/people"])

    assert file.read_bytes().startswith(before)
    assert names(parse_registry(file.read_text(), str(file))).keys() == {"orders", "people"}


def test_registering_again_changes_nothing(file: Path) -> None:
    register_tables(str(file), ["s3://lake/people"])
    before = file.read_bytes(), file.stat().st_ino

    again = register_tables(str(file), ["s3://lake/people"])

    assert (again.added, again.known) == ((), ("s3://lake/people",))
    assert (file.read_bytes(), file.stat().st_ino) == before


def test_name_that_is_taken_gets_the_directory_in_front_and_then_a_number() -> None:
    taken = [f"s3://{bucket}/x/orders.lance" for bucket in ("a", "b", "c", "d")]
    planned = plan_registration(parse_registry(OTHERS, "f"), taken)

    assert [each.name for each in planned.added] == ["x-orders", "b-x-orders", "c-x-orders", "d-x-orders"]
    odd = plan_registration(Registry(), ["s3://b/--.lance", "s3://b/x y/ü&.lance", "s3://b/x y/ü.lance"])
    assert [each.name for each in odd.added] == ["b", "x-y", "b-x-y"]


def test_names_stay_unique_when_no_part_of_the_address_is_left_to_tell_them_apart() -> None:
    uris = [f"/{'x' * 120}{number}" for number in range(3)]
    found = [each.name for each in plan_registration(Registry(), uris).added]

    assert len(set(found)) == 3
    assert all(len(name) <= 100 for name in found)


def test_excluded_tables_are_not_added(file: Path) -> None:
    done = register_tables(str(file), ["s3://lake/scratch/t.lance", "s3://lake/people"])

    assert done.excluded == ("s3://lake/scratch/t.lance",)
    assert set(names(parse_registry(file.read_text(), "f"))) == {"orders", "people"}


def test_quotes_and_backslashes_of_paths_survive(tmp_path: Path) -> None:
    uri = str(tmp_path / 'it\'s "so\\so"')
    path = tmp_path / "new.toml"
    register_tables(str(path), [uri])

    assert list(names(parse_registry(path.read_text(), str(path))).values()) == [uri]


@pytest.mark.parametrize(
    "text", ["tables = []\n", 'tables = [{name = "a", uri = "/a"}]\n', "tables = 3\n", "[[tables]\n", "nothing = 1\n"]
)
def test_file_that_takes_no_section_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(text)

    with pytest.raises(InvalidRequestError):
        register_tables(str(path), ["/somewhere/t"])

    assert path.read_text() == text
    assert os.listdir(tmp_path) == [path.name]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    planned = register_tables(str(tmp_path / "new.toml"), ["/somewhere/t"], dry_run=True)

    assert [each.name for each in planned.added] == ["t"]
    assert os.listdir(tmp_path) == []


def test_link_to_the_registry_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file.name)
    register_tables(str(link), ["s3://lake/people"])

    assert link.is_symlink()
    assert "people" in names(parse_registry(file.read_text(), "f"))


def test_place_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        register_tables(str(tmp_path / "missing" / "tables.toml"), ["/somewhere/t"])
    assert caught.value.facts["path"] == str(tmp_path / "missing" / "tables.toml")


def test_calls_at_once_lose_none_of_each_others_entries(file: Path) -> None:
    calls = [threading.Thread(target=register_tables, args=(str(file), [f"/tables/t{n}"])) for n in range(8)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()

    assert set(names(parse_registry(file.read_text(), "f"))) == {"orders", *(f"t{n}" for n in range(8))}


def test_change_by_an_editor_meanwhile_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, edited = entries.plan_registration, OTHERS + "# edited\n"

    def slowly(*arguments: object) -> object:
        file.write_text(edited)
        return planned(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(entries, "plan_registration", slowly)
    with pytest.raises(entries.ConflictError):
        register_tables(str(file), ["/somewhere/t"])

    assert file.read_text() == edited

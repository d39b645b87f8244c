"""The registry of tables: what is maintained, by name or pattern, and what is refused."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.registry import Registry, load_registry, parse_registry, read_registry
from memwal_core.registry.model import RegisteredTable
from testkit.clock import ManualClock

TEXT = """
exclude = ["*/scratch.lance", "old", "s3://lake/private/*"]

[[include]]
pattern = "s3://lake/people/*"
connection = "lake"

[[tables]]
name = "people"
uri = "s3://lake/people.lance"
connection = "lake"
every_minutes = 30
collect_garbage = true
remove_versions = true

[[tables]]
name = "old"
uri = "s3://lake/old.lance"
"""


@pytest.fixture
def registry() -> Registry:
    return parse_registry(TEXT, "tables.toml")


def test_table_is_found_by_name_and_by_address(registry: Registry) -> None:
    by_name, by_uri = registry.find("people"), registry.find("s3://lake/people.lance")

    assert by_name == by_uri
    assert (by_name.connection, by_name.every_minutes, by_name.collect_garbage) == ("lake", 30, True)
    assert by_name.remove_versions


def test_included_address_is_maintained_without_an_entry_and_never_deletes_by_schedule(registry: Registry) -> None:
    found = registry.find("s3://lake/people/of-2026.lance")

    assert (found.uri, found.connection) == ("s3://lake/people/of-2026.lance", "lake")
    assert (found.collect_garbage, found.remove_versions) == (False, False)
    assert found not in registry.maintained


@pytest.mark.parametrize("name", ["s3://lake/people/scratch.lance", "old", "s3://lake/old.lance"])
def test_excluded_table_is_refused_although_it_is_included_or_listed(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="excluded"):
        registry.find(name)


def test_misspelt_table_among_hundreds_is_refused_with_the_names_that_it_may_mean() -> None:
    """All five hundred names were told, which hid the one that was meant, and in an alert what to do as well."""
    many = "".join(f'[[tables]]\nname = "t{number:03}"\nuri = "/lake/{number:03}"\n' for number in range(500))
    orders = '[[tables]]\nname = "orders"\nuri = "/lake/orders"\n'
    with pytest.raises(InvalidRequestError) as refused:
        parse_registry(many + orders, "tables.toml").find("order")

    known = refused.value.facts["known"]
    assert isinstance(known, list)
    assert (known[0], len(known)) == ("orders", 20)


def test_unknown_table_is_refused_with_the_known_names(registry: Registry) -> None:
    with pytest.raises(InvalidRequestError, match="not registered") as refused:
        registry.find("s3://elsewhere/people.lance")

    assert refused.value.facts["known"] == ["people"]


def test_excluded_entry_is_not_maintained_by_schedule(registry: Registry) -> None:
    assert [table.name for table in registry.maintained] == ["people"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tables = 3", "tables"),
        ("[[tables]]\nname = 'a'", "tables.0.uri"),
        ("[[tables]]\nname = 'a b'\nuri = 'x'", "tables.0.name"),
        ("[[tables]]\nname = 'a'\nuri = 'x'\nevery = 3", "tables.0.every"),
        ("[[tables]]\nname = 'a'\nuri = 'x'\nevery_minutes = 0", "tables.0.every_minutes"),
        ("[[tables]]\nname = 'a'\nuri = 'x'\n[[tables]]\nname = 'a'\nuri = 'y'", "name of tables given twice: a"),
        ("[[tables]]\nname = 'a'\nuri = 'x'\n[[tables]]\nname = 'b'\nuri = './y/../x/'", "uri given twice: /"),
        ("[[include]]\npattern = 's3://lake/../x/*'", "include.0.pattern"),
        ("exclude = ['s3n://lake/private/*']", "exclude.0"),
        ("exclude = ['file:/data/private/*']", "exclude.0"),
        ("exclude = ['data/private/*']", "exclude.0"),
        ("exclude = ['C:\\\\data\\\\*']", "exclude.0"),
        ("[[sources]]\nname = 'a'\naddress = 'ftp://x'\nformat = 'csv'", "sources.0"),
        ("tables", "Expected"),
        ("[[table]]", "table: there is no such name; perhaps tables is meant"),
        ("x = " + "[" * 3000, "nested too deep"),
        ("x = " + "1" * 5000, "digits"),
        ("suites_folder = 'a\\u0000'".replace("'", '"'), "suites_folder"),
    ],
)
def test_wrong_registry_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_registry(text, "tables.toml")

    assert problem in str(refused.value.facts["problem"])


@pytest.mark.req("O1")
@pytest.mark.parametrize(
    ("entry", "name", "problem"),
    [
        ("name = 'a'", "a", "uri: Field required"),
        ("name = 'a b'\nuri = 'x'", "a b", "name: "),
        ("uri = 'x'", "tables.2", "name: Field required"),
        ("name = 'new'\nuri = 'x'\nevery = 3", "new", "every: there is no such name"),
        (
            "name = 'new'\nuri = 'x'\nevery_minute = 3",
            "new",
            "every_minute: there is no such name; perhaps every_minutes is meant",
        ),
        (
            "name = 'c'\nuri = 'x'\n[[tables]]\nname = 'c'\nuri = 'y'",
            "c",
            "several entries have this name",
        ),
        ("name = 'b'\nuri = 's3://lake/old.lance'", "b", "several entries have this uri"),
        ("name = 'new'\nuri = 'x'\nevery_minutes = inf", "new", "every_minutes: Input should be less"),
        ('name = "a \\u0000"\nuri = "x"', "tables.2", "name: String should match"),
        ("name = ['a']\nuri = 'x'", "tables.2", "name: Input should be a valid string"),
    ],
)
def test_entry_that_is_not_understood_is_a_finding_about_its_table(
    tmp_path: Path, entry: str, name: str, problem: str
) -> None:
    """Before, one mistyped entry stopped the maintenance of every table."""
    path = tmp_path / "tables.toml"
    path.write_text(f"{TEXT}\n[[tables]]\n{entry}\n")

    registry = load_registry({"MAINTENANCE_TABLES": str(path)})

    assert registry is not None
    assert [table.name for table in registry.maintained] == ["people"]
    found = {each.name: each.problem for each in registry.broken}
    assert found[name].startswith(problem)
    with pytest.raises(InvalidRequestError, match="not understood"):
        registry.find(name)
    with pytest.raises(InvalidRequestError):
        parse_registry(path.read_text(), str(path))


@pytest.mark.parametrize(
    ("entry", "others_problem"),
    [
        ("name = 'people'\nuri = 's3://lake/others.lance'", "every: there is no such name"),
        ("name = 'others'\nuri = 'S3://Lake/people.lance/'", "several entries have this uri"),
    ],
)
def test_entry_that_is_understood_and_contradicts_one_that_is_not_is_not_maintained_either(
    tmp_path: Path, entry: str, others_problem: str
) -> None:
    """Before, by schedule it was, with its own rights to delete, although by hand it was refused."""
    path = tmp_path / "tables.toml"
    path.write_text(f"{TEXT}\n[[tables]]\n{entry}\ncollect_garbage = false\nevery = 3\n")

    registry = load_registry({"MAINTENANCE_TABLES": str(path)})

    assert registry is not None
    assert registry.maintained == ()
    assert {each.name: each.problem for each in registry.broken}["people"].startswith(others_problem)


@pytest.mark.parametrize("name", ["people\ud800", "/data/\ud800", "s3://lake/\ud800"])
def test_name_that_is_no_text_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="control characters"):
        registry.find(name)


def test_table_that_is_named_twice_is_chosen_once(registry: Registry) -> None:
    people = registry.find("people")

    assert registry.choose(["people", "s3://lake/people.lance", "people"]) == (people,)
    assert registry.choose([]) == registry.maintained == (people,)


def test_no_entry_may_call_itself_broken(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        parse_registry("[[broken]]\nname = 'a'\nproblem = 'b'", str(tmp_path / "tables.toml"))


def test_no_registry_is_configured_unless_the_environment_names_one(tmp_path: Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(TEXT)

    assert load_registry({}) is None
    assert load_registry({"MAINTENANCE_TABLES": str(path)}) == parse_registry(TEXT, str(path))
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        load_registry({"MAINTENANCE_TABLES": str(tmp_path / "missing.toml")})


def test_folder_of_suites_that_cannot_be_looked_at_breaks_only_the_tables_that_have_suites(tmp_path: Path) -> None:
    """Before, the whole registry counted as unreadable, and the remedy was to correct its path."""
    path = tmp_path / "tables.toml"
    folder = f"suites_folder = '{'a' * 300}'"
    path.write_text(f"{folder}\n{TEXT}\n[[tables]]\nname = 'checked'\nuri = 'x'\nsuites = ['a.json']\n")

    registry = load_registry({"MAINTENANCE_TABLES": str(path)})

    assert registry is not None
    assert [table.name for table in registry.maintained] == ["people"]
    assert {each.name: "File name too long" in each.problem for each in registry.broken} == {"checked": True}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE])
def test_registry_that_cannot_be_read_now_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """People were told to correct its path, and no task was tried again."""

    def fail(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    (tmp_path / "tables.toml").touch()
    monkeypatch.setattr(Path, "read_text", fail)

    with pytest.raises(UnavailableError, match="cannot be read now"):
        load_registry({"MAINTENANCE_TABLES": str(tmp_path / "tables.toml")})


def test_entry_that_is_not_understood_and_excluded_is_nobodys_concern() -> None:
    """Tables that were excluded to silence them went on calling people."""
    text = 'exclude = ["scratch"]\n[[tables]]\nname = "scratch"\nurl = "/x"\n[[tables]]\nname = "other"\nurl = "/y"\n'

    assert [entry.name for entry in parse_registry(text, "tables.toml", leave_out_broken=True).broken] == ["other"]


@pytest.mark.parametrize("written", [20, -1, -3], ids=["an entry", "no last line", "half a number"])
def test_registry_that_an_editor_is_writing_is_read_when_it_is_whole(tmp_path: Path, written: int) -> None:
    """A task failed for good on half an entry; of a setting whose last digits were missing nobody could tell."""
    text = '[[tables]]\nname = "a"\nuri = "/a"\nevery_minutes = 6000\n'
    path = tmp_path / "tables.toml"
    path.write_text(text[:written])
    os.utime(path, (1_800_000_000,) * 2)

    class WhileItIsWritten(ManualClock):
        def sleep(self, seconds: float) -> None:
            path.write_text(text)
            os.utime(path, (1_800_000_000,) * 2)
            super().sleep(seconds)

    registry = read_registry(str(path), WhileItIsWritten(datetime.fromtimestamp(1_800_000_000, tz=UTC)))

    assert [table.every_minutes for table in registry.maintained] == [6000]


def test_registry_that_changes_all_the_time_is_asked_again_later(tmp_path: Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(TEXT)
    os.utime(path, (1_800_000_000,) * 2)

    class WhileItIsWritten(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(path, (self.now().timestamp(),) * 2)

    with pytest.raises(UnavailableError, match="changes all the time"):
        read_registry(str(path), WhileItIsWritten(datetime.fromtimestamp(1_800_000_000, tz=UTC)))


@pytest.mark.timeout(60)
def test_registry_may_come_through_a_pipe(tmp_path: Path) -> None:
    """Its time is that of the last write, which comes after the first look; for the second one nobody wrote."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    os.utime(path, (1_800_000_000, 1_800_000_000))
    with ThreadPoolExecutor() as pool:
        pool.submit(path.write_text, TEXT)
        registry = read_registry(str(path))

    assert [table.name for table in registry.maintained] == ["people"]


@pytest.mark.timeout(30)
def test_cost_of_a_registry_grows_with_its_tables_and_not_with_their_square() -> None:
    one = RegisteredTable(name="one", uri="/one")
    tables = tuple(one.model_copy(update={"name": f"t{number}", "uri": f"/{number}"}) for number in range(20_000))
    registry = Registry(tables=tables)
    assert registry.choose([table.name for table in tables]) == tables
    with pytest.raises(ValueError, match="given twice: /0, /1"):
        Registry(tables=(*tables, *(table.model_copy(update={"name": f"again-{table.name}"}) for table in tables)))


def test_entry_that_is_not_understood_is_logged_once_until_the_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A service reads the file again and again, and wrote a line for each such entry each time."""
    path = tmp_path / "tables.toml"
    texts = ['[[tables]]\nname = "a"\n', '[[tables]]\nname = "a"\nuri = "/a"\n']
    for text in (texts[0], texts[0], texts[1], texts[0], texts[0]):
        path.write_text(text)
        read_registry(str(path))

    assert [record.args for record in caplog.records] == [("a", "uri: Field required")] * 2


def test_relative_paths_begin_at_the_file_wherever_a_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service and Airflow's workers, which work in other directories, each took another table for the entry."""
    path = tmp_path / "registry" / "tables.toml"
    path.parent.mkdir()
    path.write_text(
        '[docs]\nmain = "pages"\n'
        '[[tables]]\nname = "a"\nuri = "../a.lance"\n'
        '[[tables]]\nname = "b"\nuri = "b.lance"\nevery_minutes = "often"\n'
        '[[tables]]\nname = "c"\nuri = "./b.lance"\n'
        '[[sources]]\nname = "landing"\naddress = "landing"\nformat = "csv"\n'
        '[[sources]]\nname = "catalog"\naddress = "prod.events"\nformat = "table"\n'
    )
    monkeypatch.chdir("/")

    registry = read_registry(str(path))

    assert [table.uri for table in registry.tables] == [str(tmp_path / "a.lance")]
    assert {each.name: each.problem for each in registry.broken}["c"] == "several entries have this uri"
    assert registry.docs == {"main": str(path.parent / "pages")}
    assert [source.address for source in registry.sources] == [str(path.parent / "landing"), "prod.events"]


@pytest.mark.parametrize("uri", ["s3:/lake/a", " a.lance", "a:b"])
def test_what_is_no_path_is_not_taken_for_a_relative_one(tmp_path: Path, uri: str) -> None:
    with pytest.raises(InvalidRequestError, match="address"):
        parse_registry(f'[[tables]]\nname = "a"\nuri = "{uri}"\n', str(tmp_path / "tables.toml"))

"""S5: a torn newest manifest of the base table is set aside, and every command works again."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.cli.app import app
from memwal_core.errors import CorruptionError
from memwal_core.table import Table
from testkit.faults.file_damage import damage_file
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table
from testkit.tables.people import people

KINDS = ("zeroed", "truncated", "empty")


@pytest.fixture
def made(tmp_path: Path) -> GenerationTable:
    return make_generation_table(str(tmp_path / "t"), "ours")


def tear(made: GenerationTable, kind: str) -> Path:
    """Append as another program would, and lose the bytes of the new manifest."""
    newest = lance.write_dataset(people(50), made.table.uri, mode="append").version
    manifest = Path(made.table.uri) / ManifestFiles(made.store).locate(newest).path
    damage_file(manifest, kind)
    return manifest


def command(made: GenerationTable, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments[:1], made.table.uri, *arguments[1:]])
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", KINDS)
def test_torn_manifest_is_set_aside_by_the_command_and_can_be_put_back(made: GenerationTable, kind: str) -> None:
    torn = tear(made, kind)
    bytes_of_torn = torn.read_bytes()
    with pytest.raises(CorruptionError):
        Table.open(made.table.uri)
    code, output = command(made, "repair", "--dry-run")
    assert (code, torn.exists()) == (0, True), output
    code, output = command(made, "repair")
    assert code == 0, output
    assert not torn.exists()
    [copy] = (Path(made.table.uri) / "_mem_wal_repair").glob(f"*/objects/_versions/{torn.name}")
    assert copy.read_bytes() == bytes_of_torn
    assert made.seen() == RIGHT
    assert command(made, "repair")[0] == 3
    assert made.merged() == RIGHT


def test_torn_manifest_and_lost_generation_are_repaired_in_one_run(made: GenerationTable) -> None:
    directory = made.directory()
    tear(made, "empty")
    made.store.delete_directory(directory)
    code, output = command(made, "repair")
    assert code == 0, output
    assert made.merged() == RIGHT


def test_table_without_any_whole_version_is_left_to_a_person(made: GenerationTable) -> None:
    for manifest in (Path(made.table.uri) / "_versions").glob("*.manifest"):
        damage_file(manifest, "zeroed")
    code, output = command(made, "repair")
    assert code == 5
    assert "restore the table from a copy" in output

"""Manifests of flushed MemTables that say what Lance cannot take: it panics, and readers get an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import MemwalError
from memwal_core.format.bounded import BoundedFile
from memwal_core.format.footer import read_manifest_footer
from memwal_core.format.framing import framed, read_framed
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from testkit.fuzz.changes.messages import encode_tree, parse_tree
from testkit.tables.generations import make_generation_table


@pytest.mark.parametrize(("stored", "forged"), [(b"double", b"dou\0le"), (b"score", b"sc\0re"), (b"score", b"name\0")])
def test_columns_that_lance_panics_at_are_damage_of_one_flushed_memtable(
    tmp_path: Path, stored: bytes, forged: bytes
) -> None:
    made = make_generation_table(str(tmp_path / "people.lance"), "ours")
    manifests = made.files("_versions")
    for path in (each for each in manifests if each.suffix == ".manifest"):
        data = path.read_bytes()
        assert stored in data
        path.unlink()
        path.write_bytes(data.replace(stored, forged))
    table = Table.open(made.table.uri)

    assert table.status().regions
    assert any(each.severity.value == "critical" for each in table.doctor().findings)
    with pytest.raises(MemwalError):
        table.to_arrow()
    assert table.run(MergeRequest(dry_run=True)).why()


def _without_files(manifest: bytes) -> bytes:
    """Return a table manifest whose fragments name no data file."""
    footer = read_manifest_footer(manifest)
    file = BoundedFile(len(manifest), lambda start, length: manifest[start : start + length], len(manifest))
    fields = parse_tree(read_framed(file, footer.manifest)) or []
    fragments = [each for each in fields if each.number == 2]
    assert fragments
    for fragment in fragments:
        assert isinstance(fragment.value, list)
        fragment.value = [each for each in fragment.value if each.number != 2]
    body = manifest[: -len(footer.pack())]
    return body + framed(encode_tree(fields)) + footer._replace(manifest=len(body)).pack()


def test_fragments_that_name_no_file_are_damage_of_one_flushed_memtable(tmp_path: Path) -> None:
    """Asking such a fragment for its rows is an error of Lance that nobody translates."""
    made = make_generation_table(str(tmp_path / "people.lance"), "ours")
    [path] = [each for each in made.files("_versions") if each.suffix == ".manifest"]
    forged = _without_files(path.read_bytes())
    path.unlink()
    path.write_bytes(forged)

    [region] = Table.open(made.table.uri).run(MergeRequest(dry_run=True)).regions

    assert region.verdict is Verdict.DAMAGED
    assert path.name in region.evidence
    assert "names no data file" in region.evidence

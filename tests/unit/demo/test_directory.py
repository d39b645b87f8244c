"""The demonstration empties its own directories and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.directory import MARKER, claim_directory
from memwal_core.errors import InvalidRequestError


def test_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    claimed = claim_directory(tmp_path / "a" / "demo")

    assert (claimed.root / MARKER).is_file()
    assert claimed.logs.is_dir()
    assert not claimed.table.exists()


def test_earlier_demonstration_is_emptied(tmp_path: Path) -> None:
    earlier = claim_directory(tmp_path)
    earlier.table.mkdir()
    (earlier.table / "data").write_text("old")
    (earlier.root / "note").write_text("old")

    claimed = claim_directory(tmp_path)

    assert sorted(entry.name for entry in claimed.root.iterdir()) == [MARKER, "airflow", "logs", "spark"]


def test_link_in_an_earlier_demonstration_is_removed_and_not_followed(tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "file").write_text("keep me")
    earlier = claim_directory(tmp_path / "demo")
    earlier.table.symlink_to(treasure)

    claimed = claim_directory(tmp_path / "demo")

    assert not claimed.table.is_symlink()
    assert (treasure / "file").read_text() == "keep me"


def test_foreign_directory_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(InvalidRequestError, match="will not be emptied") as refused:
        claim_directory(tmp_path)

    assert refused.value.facts["holds"] == ["thesis.tex"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")

    with pytest.raises(InvalidRequestError, match="a file, not a directory"):
        claim_directory(tmp_path / "demo")


def test_earlier_demonstration_is_kept_when_told_so(tmp_path: Path) -> None:
    earlier = claim_directory(tmp_path)
    (earlier.root / "note").write_text("old")

    with pytest.raises(InvalidRequestError, match="already"):
        claim_directory(tmp_path, keep=True)

    assert (earlier.root / "note").read_text() == "old"

"""Files of suites: what is executed is the text of a file, and whatever is wrong with one is our error."""

from __future__ import annotations

import json
import os
import py_compile
import zipfile
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.quality.expectations import load_suite

SUITE = "import great_expectations as gx\nsuite = gx.ExpectationSuite({name!r})\n"
MARKS = "from pathlib import Path\nPath({mark!r}).touch()\n"


def _json(path: Path, name: str) -> Path:
    path.write_text(json.dumps({"name": name, "expectations": []}))
    return path


def test_python_and_json_are_read(tmp_path: Path) -> None:
    python = tmp_path / "a.py"
    python.write_text(SUITE.format(name="rows"))

    assert load_suite(str(python)) == ("rows", [])
    assert load_suite(str(_json(tmp_path / "a.json", "Rows: 1.5 (new)"))) == ("Rows: 1.5 (new)", [])


@pytest.mark.parametrize("form", ["an archive", "bytecode", "a folder", "a pipe"])
def test_only_the_text_of_a_file_is_executed(tmp_path: Path, form: str) -> None:
    """``runpy.run_path`` executed archives, bytecode and folders of any name, and waited for pipes."""
    mark, file = tmp_path / "mark", tmp_path / "a.py"
    source = MARKS.format(mark=str(mark)) + SUITE.format(name="rows")
    if form == "an archive":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("__main__.py", source)
    elif form == "bytecode":
        (tmp_path / "source.py").write_text(source)
        py_compile.compile(str(tmp_path / "source.py"), cfile=str(file), doraise=True)
    elif form == "a folder":
        file.mkdir()
        (file / "__main__.py").write_text(source)
    else:
        os.mkfifo(file)

    with pytest.raises(InvalidRequestError, match="no expectation suite"):
        load_suite(str(file))
    assert not mark.exists()
    (tmp_path / "b.py").write_text(source)
    load_suite(str(tmp_path / "b.py"))
    assert mark.exists()  # the source does what the other forms would have done


@pytest.mark.parametrize(
    "text",
    [
        "suite = (",
        "import memwal_missing",
        "from . import other",
        "from .. import other",
        "raise SystemError('no')",
        "suite = None",
        "pass",
        "\0",
    ],
)
def test_a_python_file_that_fails_is_our_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.py").write_text("")
    file = tmp_path / "a.py"
    file.write_text(text)

    with pytest.raises(InvalidRequestError, match="no expectation suite"):
        load_suite(str(file))


@pytest.mark.parametrize(
    "document",
    [
        "!!python/object/apply:os.system ['true']",
        "[]",
        "{}",
        '{"name": "a", "expectations": [{"type": "os.system", "kwargs": {}}]}',
        '{"name": "a", "expectations": [{"type": "__class__", "kwargs": {}}]}',
        '{"name": "a", "expectations": [{"type": "expect_table_row_count_to_equal", "kwargs": {"rows": 1}}]}',
        '{"name": "a", "expectations": 1}',
        "[" * 100_000,
    ],
)
def test_json_that_is_no_suite_is_our_error(tmp_path: Path, document: str) -> None:
    """Great Expectations leaves expectations out that it does not understand, so that the suite would be met."""
    file = tmp_path / "a.json"
    file.write_text(document)

    with pytest.raises(InvalidRequestError, match="no expectation suite"):
        load_suite(str(file))


@pytest.mark.parametrize("name", ["../../out", "a/b", "a\\b", "a\nb", "", "a" * 101])
def test_a_name_that_cannot_be_part_of_a_files_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"part of file names|no expectation suite"):
        load_suite(str(_json(tmp_path / "a.json", name)))

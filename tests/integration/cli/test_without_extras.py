"""Commands work with the extra `cli` alone; what needs another says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memwal_core.extras import EXTRA_OF
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

# Rich brings markdown_it.
ABSENT = sorted(name for name, extra in EXTRA_OF.items() if extra != "cli" and name != "markdown_it")
BARE = f"""
import sys

class Absent:
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{fullname!r}}", name=fullname)

sys.meta_path.insert(0, Absent())
from memwal_core.cli import main
main()
"""
COMMANDS = [
    "tables .", "schema people.lance", "head people.lance", "count people.lance", "lookup people.lance 1",
    "status people.lance", "status people.lance --check", "doctor people.lance", "doctor people.lance --deep",
    "explain people.lance --key 1 --analyze", "history people.lance", "checks people.lance",
    "verify people.lance", "maintain people.lance", "backup people.lance copy.lance",
]  # fmt: skip


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_generations(make_people_table("people.lance", rows=people(1, 2)), [1, 3], [4], name="new")


@pytest.mark.slow  # A process for each command.
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_needs_no_other_extra(command: str) -> None:
    ended = bare(*command.split())

    assert ended.returncode in {0, 3, 6}, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("table")
def test_doctor_compares_keys_without_pandas() -> None:
    ended = bare("doctor", "people.lance")

    assert ended.returncode == 0, ended.stderr
    assert "3 keys compared" in ended.stdout


@pytest.mark.usefixtures("table")
def test_command_that_needs_an_extra_names_one() -> None:
    ended = bare("quality", "people.lance")

    assert ended.returncode == 2
    assert 'pip install "memwal-core[spark]"' in ended.stderr
    assert "Traceback" not in ended.stderr

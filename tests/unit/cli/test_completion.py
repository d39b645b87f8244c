"""Completion in bash, by the script that `memwal --show-completion bash` prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
eval "$("$1" --show-completion bash)"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_memwal_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("memwal mer", ["merge"]),
        ("memwal airflow ins", ["install"]),
        ("memwal merge --dry", ["--dry-run"]),
        ("memwal merge people.lance --engine ", ["auto", "local", "spark"]),
        ("memwal merge peo", []),  # The shell offers files then.
    ],
)
def test_bash_offers_commands_options_and_values(line: str, offered: list[str]) -> None:
    memwal = str(Path(sys.executable).parent / "memwal")
    asked = subprocess.run(
        ["bash", "-c", ASK, "bash", memwal, *line.split(" ")], capture_output=True, text=True, check=True
    )

    assert asked.stdout.split() == offered

"""Every test belongs to one of the targets that run tests, and the check of a commit runs them all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _pytest_call(target: str) -> list[str]:
    """Return how a target calls pytest, without what the caller of make may have set, processes, and limits of time."""
    variables = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "PYTEST_ARGS")}
    command = ["make", "--dry-run", "--no-print-directory", target]
    said = subprocess.run(command, cwd=ROOT, env=variables, check=True, capture_output=True, text=True).stdout
    (line,) = (line for line in said.splitlines() if " pytest " in line)
    words = shlex.split(line)
    call = words[words.index("pytest") :]
    while "-o" in call:
        option = call.index("-o")
        assert call[option + 1].startswith("faulthandler_")
        del call[option : option + 2]
    processes = call.index("-n")
    return [*call[:processes], *call[processes + 2 :]]


def _selection(call: list[str]) -> str:
    return call[call.index("-m") + 1]


def test_a_test_runs_in_one_of_the_targets_and_never_in_two_or_none() -> None:
    calls = [_pytest_call(target) for target in ("test", "test-slow", "test-long", "test-all")]

    # The last one runs what the first two do.
    assert [_selection(call) for call in calls] == ["not slow and not long", "slow and not long", "long", "not long"]
    # But for the marker the calls are equal: none leaves out a folder, a file or a plugin.
    assert len({tuple(word for word in call if word != _selection(call)) for call in calls}) == 1


def test_no_option_leaves_tests_out_before_the_marker_decides() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    left_out = re.compile(r"(?<!\S)(-m|-k|--ignore\S*|--deselect\S*)(?!\S)")

    assert options["testpaths"] == ["tests"]
    assert {"norecursedirs", "python_files", "python_functions"} & options.keys() == set()
    assert left_out.findall(options["addopts"]) == []
    assert [str(path) for path in ROOT.glob("tests/**/conftest.py") if "collect_ignore" in path.read_text()] == []


def test_unit_target_runs_only_tests_that_the_test_target_runs() -> None:
    unit = _pytest_call("test-unit")

    assert _selection(unit) == "not slow and not long"
    assert unit[unit.index("-m") + 2 :] == ["tests/unit", "tests/property"]


def test_continuous_integration_runs_everything_once() -> None:
    called = re.findall(r"^make --no-print-directory (?:--\S+ )*(\S+)$", (ROOT / ".ci" / "run").read_text(), re.M)

    assert called == ["setup", "lint", "test-all"]


def test_fresh_properties_try_as_many_times_as_many_examples_however_many_cases_they_have() -> None:
    property_of_two_cases = ["tests/property/test_merge_search.py", "-k", "integers", "--hypothesis-show-statistics"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *property_of_two_cases]

    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "EXAMPLES_TIMES": "2"}, capture_output=True, text=True)

    # Eight are usual.
    assert re.findall(r"max_examples=(\d+)", ran.stdout) == ["16", "16"], ran.stdout

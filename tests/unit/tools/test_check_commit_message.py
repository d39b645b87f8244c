"""Subjects of commits keep to the limit that CONTRIBUTING.md states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_commit_message import SUBJECT_LIMIT, faults, main

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "message",
    [
        "Fence before replay",
        "x" * SUBJECT_LIMIT,
        "Fence\n\nThe body may end with a period, " + "and be long " * 10 + ".",
    ],
)
def test_subject_within_the_limit_passes(message: str) -> None:
    assert faults(message) == []


def test_subject_over_the_limit_is_refused_with_its_length() -> None:
    (fault,) = faults("x" * (SUBJECT_LIMIT + 1))

    assert str(SUBJECT_LIMIT + 1) in fault


def test_subject_with_a_period_at_its_end_is_refused() -> None:
    assert faults("Fence before replay. ") == ["the subject ends with a period"]


def test_comments_and_blank_lines_before_the_subject_do_not_count() -> None:
    assert faults(f"\n# {'x' * 100}.\nFence before replay\n# Please enter a message.") == []


def test_refused_message_makes_git_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("Fence before replay.\n")

    assert main([str(message)]) == 1
    assert "period" in capsys.readouterr().out


def test_limit_is_the_one_that_contributors_are_told() -> None:
    assert f"at most {SUBJECT_LIMIT} characters" in (ROOT / "CONTRIBUTING.md").read_text()

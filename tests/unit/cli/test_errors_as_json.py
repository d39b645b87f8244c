"""With --json an error is one document on stdout, whatever the error is, and the exit code stays what it was."""

from __future__ import annotations

import inspect
import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from memwal_core import errors
from memwal_core.cli import app as app_module
from memwal_core.cli.ending import asks_for_json
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.errors import MemwalError
from testkit import commands as shell

KINDS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, MemwalError)]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "log_redacted", lambda _level: None)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["memwal", *arguments])
    with pytest.raises(SystemExit) as ended:
        app_module.run()
    return int(ended.value.code or 0)


def raising(error: BaseException):
    def command(*, standalone_mode: bool) -> None:
        raise error

    return command


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_every_error_of_ours_is_one_document(kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    error = kind("it broke", remedy="mend it", version=3, names=("a", "b"), odd={1, 2})
    monkeypatch.setattr(app_module, "app", raising(error))

    assert run(monkeypatch, "merge", "t", "--json") == kind.exit_code

    said = capsys.readouterr()
    facts = {"version": 3, "names": ["a", "b"], "odd": "{1, 2}"}
    assert json.loads(said.out) == {
        "outcome": "error",
        "exit_code": kind.exit_code,
        "error": {"class": kind.__name__, "what": "it broke", "next": "mend it", "facts": facts},
    }
    assert "error: it broke" in said.err  # For whoever reads the log.
    assert run(monkeypatch, "merge", "t") == kind.exit_code
    assert capsys.readouterr().out == ""


def test_error_that_nothing_expected_is_a_document_without_secrets(monkeypatch, capsys):
    monkeypatch.setattr(app_module, "app", raising(OSError("s3://key:secretsecret@bucket/x failed")))

    assert run(monkeypatch, "merge", "t", "--json") == 1

    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["exit_code"], document["error"]["class"]) == (1, "OSError")
    assert "failed" in document["error"]["what"]
    assert "secretsecret" not in said.out + said.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["merge", "--json"], "URI"),
        (["merge", "t", "--bad", "--json"], "--bad"),
        (["merge", "t", "--max-bytes", "many", "--json"], "--max-bytes"),
        (["nonsense", "--json"], "nonsense"),
        (["index", "nonsense", "--json"], "nonsense"),
    ],
)
def test_wrong_usage_is_a_document(arguments, what, monkeypatch, capsys):
    assert run(monkeypatch, *arguments) == 2

    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["exit_code"], document["error"]["class"]) == (2, "UsageError")
    assert what in document["error"]["what"]
    assert "--help" in document["error"]["next"]
    # People look at stderr, also where a program asked: a log of it had nothing of a command that was mistyped.
    assert document["error"]["what"] in said.err


def test_success_and_help_are_as_without_it(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "merge", "--json", "--help") == 0
    assert "Usage" in capsys.readouterr().out
    assert run(monkeypatch, "create", str(tmp_path / "t"), "--column", "id:int64", "--key", "id", "--json") == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "done"
    assert run(monkeypatch, "merge", str(tmp_path / "t"), "--json") == 3
    assert json.loads(capsys.readouterr().out)["outcome"] == "nothing_to_do"
    assert run(monkeypatch, "merge", str(tmp_path / "t"), "--json", "--ok-when-nothing") == 0


def test_words_after_a_double_dash_are_no_options() -> None:
    assert asks_for_json(["merge", "t", "--json"])
    assert not asks_for_json(["lookup", "t", "--", "--json"])


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (3, 0), (4, 4), (5, 5)])
def test_only_nothing_to_do_becomes_a_success(code: int, ends: int) -> None:
    def command(uri: str) -> None:
        """Do it."""
        sys.exit(code)

    app = typer.Typer()
    app.command()(may_find_nothing(command))

    assert CliRunner().invoke(app, ["t", "--ok-when-nothing"]).exit_code == ends
    assert CliRunner().invoke(app, ["t"]).exit_code == code


def test_every_command_that_may_find_nothing_has_the_option() -> None:
    without = {
        " ".join(path)
        for path, command in shell.commands().items()
        if "3 " in (command.help or "").partition("Exit codes:")[2]
        and "--ok-when-nothing" not in shell.options_of(command)
    }

    # Here 3 means that the table is none of ours, which is no success.
    assert without == {"doctor"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_interruption_is_a_document_with_the_exit_code_of_a_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    monkeypatch.setattr(app_module, "app", raising(error))

    assert run(monkeypatch, "status", "t", "--json") == 130
    assert json.loads(capsys.readouterr().out)["error"]["what"] == "the command was interrupted"

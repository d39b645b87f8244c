"""`memwal airflow`: what an Airflow of one's own needs besides the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import memwal_core
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, print_json
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.storage.address import local_path

airflow = typer.Typer(
    help="Put DAGs, page and Spark applications where Airflow finds them.", no_args_is_help=True, add_completion=False
)

FOLDERS = ("dags", "jobs", "plugins")


@airflow.callback()
def _group() -> None:
    """Keep `install` a command of its own name."""


@airflow.command()
@may_find_nothing
def install(
    given: Annotated[
        str,
        typer.Argument(help="Gets the folders dags, jobs and plugins.", metavar="DIR", show_default=False),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace files that are there and differ, as after an upgrade.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    json: AsJson = False,
) -> None:
    """Copy DAGs, page and Spark applications of this version into a directory; other files there stay as they are.

    Exit codes: 0 files were written, 2 bad input, or files that differ without --replace, 3 everything is there.
    """
    directory = Path(local_path(given))
    wanted = {Path(name) / path: content for name in FOLDERS for path, content in _files(shipped(name)).items()}
    missing = [path for path, content in wanted.items() if _content(directory / path) != content]
    different = [path for path in missing if (directory / path).exists()]
    if different and not replace:
        raise InvalidRequestError(
            "other files are there",
            remedy="add --replace, or choose another directory",
            directory=str(directory),
            files=[str(path) for path in different],
        )
    for path in missing:
        if not dry_run:
            _write(directory / path, wanted[path])
        if not json:
            typer.echo(f"{'would write' if dry_run else 'wrote'} {directory / path}")
    if not missing and not json:
        typer.echo(f"everything is there: {directory}")
    acted = JobOutcome.PLANNED if dry_run else JobOutcome.DONE
    outcome = acted if missing else JobOutcome.NOTHING_TO_DO
    if json:
        print_json({"outcome": outcome.value, "directory": str(directory), "files": [str(path) for path in missing]})
    sys.exit(outcome.exit_code)


def shipped(name: str) -> Path:
    """Return a folder that the package brings: inside of it where it was installed, beside it in a working copy."""
    package = Path(memwal_core.__file__).parent
    inside = package / "shipped" / name
    return inside if inside.is_dir() else package.parent / name


def _files(folder: Path) -> dict[Path, bytes]:
    return {Path(path.name): path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in {".py", ".json"}}


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InvalidRequestError(
            "the file cannot be written",
            remedy="choose a directory that you may write in",
            path=str(path),
            reason=error.strerror or str(error),
        ) from error


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None

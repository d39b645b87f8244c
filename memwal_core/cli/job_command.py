"""The command of a job, made from its request: one option for each field."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import progress_shown, show_view
from memwal_core.coordination.freeze.watch import foreseen
from memwal_core.jobs.request import Flag, JobRequest
from memwal_core.jobs.thaw.report import foretold, foretold_to_machines, told, told_to_machines
from memwal_core.storage.options import parse_pairs
from memwal_core.table import Table

if TYPE_CHECKING:
    from memwal_core.jobs.checkpoint.report import CheckpointReport
    from memwal_core.jobs.job import JobReport

RequestT = TypeVar("RequestT", bound=JobRequest)


def job_command(request_type: type[JobRequest]) -> Callable[..., None]:
    """Return the function that Typer makes a job's command of."""

    def command(uri: str, *, storage_option: list[str] | None, json: bool, **given: Any) -> None:  # noqa: ANN401
        freezes = not request_type.info.acts_on_frozen
        run_job(request_from(request_type, given), uri, storage_option, json=json, freezes=freezes)

    own = [_parameter(name, field) for name, field in request_type.model_fields.items()]
    shared = [
        inspect.Parameter("storage_option", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=StorageOptions),
        inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
    ]
    table = inspect.Parameter("uri", inspect.Parameter.KEYWORD_ONLY, annotation=TableUri)
    signature = inspect.Signature([table, *own, *shared])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    command.__name__ = request_type.info.name
    command.__doc__ = (
        f"{summary_of(request_type)}\n\nExit codes: 0 done or planned, 2 bad input, {request_type.info.exit_codes}."
    )
    return command


def request_from(request_type: type[RequestT], given: Mapping[str, Any]) -> RequestT:
    """Make a request of what Typer read; what was not given keeps its default."""
    values = {name: _value(request_type.model_fields[name], value) for name, value in given.items()}
    return request_type(**{name: value for name, value in values.items() if value is not None})


def run_job(request: JobRequest, uri: str, storage_option: list[str] | None, *, json: bool, freezes: bool) -> NoReturn:
    """Run a job on a table, show its report, and end the process with its exit code.

    A dry run of a job that ``freezes`` what contradicts its history says so, where a run would refuse.
    """
    table = open_table(uri, storage_option, even_if_damaged=request.info.mends_damage)
    with progress_shown(request.info.name, disable=json) as progress:
        report = table.run(request, progress=progress)
    show_report(table, uri, report, json=json, dry_run=request.dry_run, freezes=freezes)
    sys.exit(report.outcome.exit_code)


def show_report(
    table: Table, uri: str, report: JobReport | CheckpointReport, *, json: bool, dry_run: bool, freezes: bool
) -> None:
    """Show a report; of a dry run with what is frozen, and what a run would freeze."""
    opened = table.opened
    frozen = opened.freezes.active() if dry_run else ()
    would_be = foreseen(opened.base, opened.manifests, opened.freezes) if dry_run and freezes else ()
    if json:
        of_plan = {"frozen": told_to_machines(uri, frozen), "would_be_frozen": foretold_to_machines(would_be)}
        print_json({**report.to_dict(), **(of_plan if dry_run else {})})
    else:
        view = report.view()
        show_view(replace(view, notes=(*view.notes, *told(uri, frozen), *foretold(would_be))))


def summary_of(request_type: type[JobRequest]) -> str:
    """Return what a request's documentation says before its fields."""
    return inspect.cleandoc(request_type.__doc__ or "").partition("\n\nAttributes:")[0]


def parameters_of(command: Callable[..., None]) -> list[inspect.Parameter]:
    """Return what Typer reads from a command: an argument or an option each."""
    return list(inspect.signature(command).parameters.values())


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    flag = next((each for each in field.metadata if isinstance(each, Flag)), Flag(f"--{name.replace('_', '-')}"))
    help_text = f"{field.description or ''}{' Repeatable.' if _is_many(field) else ''}"
    metavar = flag.metavar or None
    if flag.is_argument:
        annotation: Any = Annotated[_cli_type(field), typer.Argument(help=help_text, metavar=metavar)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    shows_default = isinstance(field.default, int | StrEnum) and field.default is not False
    option = typer.Option(flag.name, help=help_text, metavar=metavar, show_default=shows_default)
    default = None if _is_many(field) or field.is_required() else field.default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[_cli_type(field), option]
    )


def _is_many(field: FieldInfo) -> bool:
    return get_origin(field.annotation) in (tuple, dict)


def _cli_type(field: FieldInfo) -> Any:  # noqa: ANN401 - a type
    if _is_many(field):
        return list[str] if field.is_required() else list[str] | None
    # Without the bounds of a number that may be missing, which Typer would print as they are.
    kinds = [
        get_args(kind)[0] if get_origin(kind) is Annotated else kind
        for kind in _union(field.annotation)
        if kind is not NoneType
    ]
    return kinds[0] if len(kinds) == len(_union(field.annotation)) else kinds[0] | None


def _union(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _value(field: FieldInfo, value: Any) -> Any:  # noqa: ANN401
    return parse_pairs(value) if get_origin(field.annotation) is dict and value is not None else value

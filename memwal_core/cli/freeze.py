"""`memwal freeze` and `memwal thaw`: stop every job of a table, and let a person decide how they go on."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, DryRun, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_view
from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome


def _text(given: str) -> str:
    """Return an argument as it is stored: one that is not UTF-8, as from a terminal in Latin-1, with question marks."""
    return given.encode(errors="replace").decode()


By = Annotated[
    str,
    typer.Option("--by", help="Who decides; the user of this process by default.", metavar="NAME", parser=_text),
]


@may_find_nothing
def freeze(
    uri: TableUri,
    reason: Annotated[
        str, typer.Option("--reason", help="Why, for whoever finds the table frozen.", metavar="TEXT", parser=_text)
    ],
    by: By = "",
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Stop every job of a table until a person thaws it. Writers and readers go on; readers warn.

    Exit codes: 0 done or planned, 2 bad input, 3 a person froze it before, and that reason stays, 4 storage failure
    (try again).
    """
    from memwal_core.jobs.thaw.run import require_reason  # noqa: PLC0415 - most commands start without it

    table = open_table(uri, storage_option)
    require_reason(reason)
    is_frozen = any(each.cause is FreezeCause.BY_HAND for each in table.opened.freezes.active())
    if not (is_frozen or dry_run):
        table.freeze(reason, by=by or _user())
    found = table.thaw()
    acted = JobOutcome.PLANNED if dry_run else JobOutcome.DONE
    outcome = JobOutcome.NOTHING_TO_DO if is_frozen else acted
    if json:
        print_json({**found.to_dict(), "outcome": outcome.value})
    elif dry_run and not is_frozen:
        typer.echo(f"would freeze {uri}: {reason}")
    else:
        if is_frozen:
            typer.echo("nothing to do: a person froze the table before, and that reason stays; thaw it to give another")
        show_view(found.view())
    sys.exit(outcome.exit_code)


@may_find_nothing
def thaw(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    choice: Annotated[Choice | None, typer.Option("--choice", help="How the freeze ends.")] = None,
    cause: Annotated[
        FreezeCause | None, typer.Option("--cause", help="Which cause it is about, if there are several.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the history.", metavar="TEXT", parser=_text)] = "",
    by: By = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """End a freeze with a choice; without one, explain each freeze, its evidence, and what each choice does.

    Exit codes: 0 done or planned, 2 bad input, 3 the table is not frozen, 4 conflict or storage failure (try again),
    5 the choice cannot be carried out, 8 the table is frozen and no choice was made.
    """
    if choice is None and (cause is not None or dry_run):
        raise InvalidRequestError("no choice was made", remedy="name one with --choice", choices=list(map(str, Choice)))
    from memwal_core.jobs.thaw.run import Decision  # noqa: PLC0415 - most commands start without it

    decision = Decision(choice, by or _user(), cause, reason) if choice is not None else None
    report = open_table(uri, storage_option).thaw(decision, dry_run=dry_run)
    if json:
        print_json(report.to_dict())
    else:
        show_view(report.view())
    sys.exit(report.outcome.exit_code)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # A container's user need not have a name; Python before 3.13 says it with a KeyError.
        return "unknown"

"""`--ok-when-nothing`: for scripts that end at the first exit code but 0."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

NOTHING_TO_DO = 3
_NAME = "ok_when_nothing"
_OPTION = typer.Option(
    "--ok-when-nothing", help=f"End with 0 instead of {NOTHING_TO_DO} if there is nothing to do.", show_default=False
)


def may_find_nothing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that ends with 3 where there is nothing to do the option to end with 0 instead."""

    @functools.wraps(command)
    def ended(*arguments: Any, **given: Any) -> None:  # noqa: ANN401
        is_wanted = given.pop(_NAME)
        try:
            command(*arguments, **given)
        except SystemExit as end:
            if is_wanted and end.code == NOTHING_TO_DO:
                sys.exit(0)
            raise

    option = inspect.Parameter(
        _NAME, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _OPTION]
    )
    signature = inspect.signature(command, eval_str=True)
    signature = signature.replace(parameters=[*signature.parameters.values(), option])
    ended.__signature__ = signature  # type: ignore[attr-defined]
    ended.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return ended

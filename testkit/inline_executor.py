"""Doing now what threads would do later, so that a test decides what happens when."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class InlineExecutor(Executor):
    """Runs each call at once, in the thread that submits it."""

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        """Run a call; what it raises, a simulated crash too, waits in the future as it would from a thread."""
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)
        return future

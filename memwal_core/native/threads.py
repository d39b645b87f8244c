"""The numbers of threads that the environment gives Lance, some of which make it wait for ever or panic."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from memwal_core.errors import InvalidRequestError

_LEAST = {"LANCE_IO_THREADS": 2, "LANCE_CPU_THREADS": 1}
_NUMBER = re.compile(r"\+?[0-9]+", re.ASCII)


def require_threads(environment: Mapping[str, str] | None = None) -> None:
    """Return if Lance can work with the threads that it is given; the environment is the process's own if None.

    With one thread for I/O, Lance 14 waits for itself for ever when it appends, compacts or builds an index. What is
    not a number ends in a panic.

    Raises:
        InvalidRequestError: It cannot.
    """
    variables = os.environ if environment is None else environment
    for name, least in _LEAST.items():
        value = variables.get(name)
        if value is None or (_NUMBER.fullmatch(value) and int(value) >= least):
            continue
        raise InvalidRequestError(
            f"{name} is not a number of threads that Lance can work with",
            remedy=f"set it to {least} or more, or take it out of the environment",
            variable=name,
            value=value,
            least=least,
        )

"""Reading the registry."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from memwal_core.errors import InvalidRequestError
from memwal_core.registry.model import Registry

REGISTRY_VARIABLE = "MAINTENANCE_TABLES"
"""Names the file. Not ``MEMWAL_``: what is installed is no setting of the library."""


def load_registry(environment: Mapping[str, str] | None = None) -> Registry | None:
    """Read the registry that the environment names; None if it names none.

    Args:
        environment: Variables; those of the process by default.

    Raises:
        InvalidRequestError: The file cannot be read, or says something that is not understood.
    """
    path = (os.environ if environment is None else environment).get(REGISTRY_VARIABLE)
    if not path:
        return None
    try:
        return parse_registry(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            "the registry of tables cannot be read",
            remedy=f"correct {REGISTRY_VARIABLE}, or the file's rights",
            path=path,
            problem=str(error),
        ) from error


def require_registry() -> Registry:
    """Read the registry that the environment names.

    Raises:
        InvalidRequestError: As ``load_registry``, or it names none: then no run may name any table.
    """
    registry = load_registry()
    if registry is None:
        raise InvalidRequestError(
            "no tables are registered",
            remedy=f"name a registry with {REGISTRY_VARIABLE}; docs/operating.md shows one",
        )
    return registry


def parse_registry(text: str, path: str) -> Registry:
    """Read a registry.

    Args:
        text: TOML.
        path: Where it is from: for the error, and because its relative paths begin there.

    Raises:
        InvalidRequestError: It says something that is not understood, or names something twice.
    """
    try:
        registry = Registry.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, str(error)) from error
    folder = (Path(path).resolve().parent / registry.suites_folder).resolve()
    return registry.model_copy(update={"suites_folder": str(folder)})


def _wrong(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the registry of tables is not understood",
        remedy="correct the file; docs/operating.md describes it",
        path=path,
        problem=problem,
    )

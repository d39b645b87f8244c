"""Storage options as texts: those of a command line and those of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from memwal_core.errors import InvalidRequestError
from memwal_core.storage.address import parse_address
from memwal_core.storage.protocol import StoreKind

STORAGE_OPTIONS_VARIABLE = "MAINTENANCE_STORAGE_OPTIONS"
"""Storage options as JSON: how an orchestrator hands secrets to a job without showing them to everybody."""


def parse_pairs(texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``key=value`` pairs.

    Raises:
        InvalidRequestError: A text has no ``=`` or an empty key, or a key has two values.
    """
    options: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            # The text may be a secret whose key was forgotten: it is not repeated.
            raise InvalidRequestError("an option is not of the form key=value", remedy="write it as key=value")
        if options.setdefault(key, value) != value:
            raise InvalidRequestError("an option is given twice", remedy="give it once", option=key)
    return options


def require_used(options: Mapping[str, str], *uris: str) -> None:
    """Refuse options for local paths alone, which would ignore them.

    Raises:
        InvalidRequestError: There are options, and no address is that of an object store.
    """
    if options and all(parse_address(uri).kind is StoreKind.LOCAL for uri in uris):
        raise InvalidRequestError(
            "a local path takes no storage options",
            remedy="leave the options out, or name the address of an object store, as in s3://BUCKET/TABLE",
            uris=list(uris),
            options=sorted(options),
        )


def environment_storage_options() -> dict[str, str]:
    """Return the storage options that the environment has; none if there are none.

    Raises:
        InvalidRequestError: The variable is no JSON object of texts.
    """
    text = os.environ.get(STORAGE_OPTIONS_VARIABLE)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        # Not repeated and not chained: the text may be a secret.
        raise InvalidRequestError(
            "the storage options of the environment are no JSON object of texts",
            remedy=f"correct {STORAGE_OPTIONS_VARIABLE}",
        )
    return found

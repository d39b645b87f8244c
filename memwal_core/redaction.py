"""Secrets in texts: replaced before a text is shown, logged, stored or sent.

Stores and proxies quote requests in their answers, headers and queries included, and libraries quote the answers. So
two things are replaced: the values that this process was given as secrets, wherever they stand, and what has the form
of a secret. ``MemwalError`` does it with all that it says; logs and tracebacks of processes of ours go through
``RedactingFormatter`` and ``show_unexpected``.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
"""Stands for a secret."""

_SECRET_NAME = re.compile(
    r"secret|token|password|credential|sas|bearer|signature|_key$|_key_base64$|access_key", re.IGNORECASE
)
_NOT_SECRET = re.compile(r"file|path|endpoint|_provider|expiry", re.IGNORECASE)
_OF_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_", "GCP_")
_SHORTEST = 8
"""Characters of a value that is looked for; shorter ones would hide other words."""

_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("@",), re.compile(r"(?<=://)[^/@\s'\"]*@"), f"{HIDDEN}@"),
    (("?",), re.compile(r"((?:https?|abfss?|wasbs?)://[^\s?\"'<>]*)\?[^\s\"')<>]*"), r"\1"),
    (("bearer", "basic"), re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/-]{12,}=*"), rf"\1 {HIDDEN}"),
    (("<",), re.compile(r"<((?:[A-Za-z]*Token)(?:-\d+)?)>[^<]*"), rf"<\1>{HIDDEN}"),
    (("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (
        ("secret", "key", "token", "passw", "credential", "sig"),
        re.compile(
            r"\b((?:[a-z0-9]+[-_])*(?:secret(?:[-_.](?:access[-_.])?key)?|account[-_]key|sas[-_](?:key|token)|"
            r"session[-_]token|security[-_]token|password|passwd|signature|credential|sig)['\"]?\s*[=:]\s*['\"]?)"
            r"[^\s'\"&;,<>)\]}]{6,}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)
"""For each form what a text with it contains in any case, which costs a tenth of the form to find; the form; and what
replaces it."""

_known: set[str] = set()


def remember_secrets(options: Mapping[str, str]) -> None:
    """Have the secrets among storage options, and among the cloud's variables of this process, replaced from now on."""
    variables = {name: os.environ.get(name, "") for name in os.environ if name.startswith(_OF_CLOUDS)}
    for name, value in {**variables, **options}.items():
        if _SECRET_NAME.search(name) and not _NOT_SECRET.search(name):
            _known.update(each for each in _spellings(value) if len(each) >= _SHORTEST)


def redact(text: str) -> str:
    """Return a text without secrets."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    folded = text.casefold()
    for signs, form, instead in _FORMS:
        if any(sign in folded for sign in signs):
            text = form.sub(instead, text)
    return text


def redacted(value: Any) -> Any:  # noqa: ANN401 - facts of errors are of any type
    """Return a value without secrets in the texts that it consists of."""
    if type(value) is str:
        return redact(value)
    if isinstance(value, Mapping):
        return {redacted(name): redacted(each) for name, each in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(redacted(each) for each in value)
    return value


def harmless(error: BaseException) -> BaseException | None:
    """Return an error that may be chained; None if it says a secret, which a traceback would show."""
    text = str(error)
    return error if redact(text) == text else None


class RedactingFormatter(logging.Formatter):
    """Formats log records without secrets, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines."""
        return redact(super().format(record))


def show_unexpected(error: BaseException) -> None:
    """Write the traceback of an error that nothing expected to stderr, without secrets."""
    sys.stderr.write(redact("".join(traceback.format_exception(error))))


def log_redacted(level: int) -> None:
    """Have the logs of a process of ours written to stderr without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _spellings(value: str) -> set[str]:
    """Return a secret as it stands in headers, addresses and XML, and the parts of a query that is one."""
    # A signature of Azure is a query of its own, of which servers quote parts.
    signed = [part.partition("=")[2] for part in value.lstrip("?").split("&") if part.startswith("sig=")]
    found = {value, *signed}
    found |= {unquote(each) for each in found}
    found |= {quote(each, safe="") for each in found} | {quote(each) for each in found}
    return found | {each.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for each in found}

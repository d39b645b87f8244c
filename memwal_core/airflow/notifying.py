"""Whom alerts reach besides the log: notifiers of Airflow that the operator names."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier

from memwal_core.errors import InvalidRequestError

NOTIFIERS_VARIABLE = "MAINTENANCE_NOTIFIERS"
"""A JSON list: each notifier's ``class``, and the arguments ``with`` which it is made, templates among them."""

_log = logging.getLogger(__name__)


def notify(alert: Mapping[str, str], context: Mapping[str, Any]) -> None:
    """Hand an alert to every notifier, whose templates know it as ``memwal``; one that fails keeps it from no other."""
    for notifier in notifiers():
        try:
            notifier({**context, "memwal": dict(alert)})
        except Exception:  # noqa: BLE001 - of somebody else's code
            _log.exception("a notifier failed [class=%s]", type(notifier).__name__)


def notifiers() -> list[BaseNotifier]:
    """Make the notifiers anew, because rendering changes them.

    Raises:
        InvalidRequestError: The variable is wrong; correct it.
    """
    text = os.environ.get(NOTIFIERS_VARIABLE) or "[]"
    try:
        return [_notifier(each["class"], each.get("with", {})) for each in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise InvalidRequestError(
            f"{NOTIFIERS_VARIABLE} names no notifiers",
            remedy='write a JSON list like [{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", '
            '"with": {"to": "oncall@example.com"}}]',
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _notifier(path: str, arguments: dict[str, Any]) -> BaseNotifier:
    module, _, name = path.rpartition(".")
    made = getattr(import_module(module), name)(**arguments)
    if not isinstance(made, BaseNotifier):
        raise TypeError(f"{path} is not a notifier of Airflow")
    return made

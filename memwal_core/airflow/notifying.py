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
    for named in json.loads(os.environ.get(NOTIFIERS_VARIABLE) or "[]"):
        try:
            # Made anew, because rendering changes it.
            _notifier(named)({**context, "memwal": dict(alert)})
        except Exception:  # noqa: BLE001 - of somebody else's code
            _log.exception("a notifier failed [class=%s]", named.get("class"))


def notifiers() -> list[BaseNotifier]:
    """Return the notifiers that the variable names.

    Raises:
        InvalidRequestError: The variable is wrong, or one of them cannot be made; correct it.
    """
    text = os.environ.get(NOTIFIERS_VARIABLE) or "[]"
    try:
        return [_notifier(each) for each in json.loads(text)]
    except Exception as error:
        raise InvalidRequestError(
            f"{NOTIFIERS_VARIABLE} names no notifiers",
            remedy='write a JSON list like [{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", '
            '"with": {"to": "oncall@example.com"}}]',
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _notifier(named: Mapping[str, Any]) -> BaseNotifier:
    path = named["class"]
    module, _, name = path.rpartition(".")
    made = getattr(import_module(module), name)(**named.get("with", {}))
    if not isinstance(made, BaseNotifier):
        raise TypeError(f"{path} is not a notifier of Airflow")
    return made

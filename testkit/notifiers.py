"""Notifiers of an operator: one that keeps what it was told, and one that is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class KeepingNotifier(BaseNotifier):
    """Appends its rendered message to a file."""

    template_fields: Sequence[str] = ("message",)

    def __init__(self, *, file: str, message: str) -> None:
        super().__init__()
        self.file, self.message = file, message

    def notify(self, context: Any) -> None:  # noqa: ANN401, ARG002 - Airflow's signature
        """Append the message."""
        with Path(self.file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(self.message) + "\n")


class BrokenNotifier(BaseNotifier):
    """Fails before Airflow's own handling of errors."""

    def __call__(self, *args: Any) -> None:  # noqa: ANN401, ARG002
        """Fail."""
        raise OSError("no mail server")


MESSAGE = "{{ memwal.what }}: {{ memwal.table }}; {{ memwal.verdict }}; {{ memwal.runbook }}; {{ dag_run is defined }}"


def notifiers_telling(file: Path) -> str:
    """Return the operator's setting."""
    told = {"class": f"{__name__}.KeepingNotifier", "with": {"file": str(file), "message": MESSAGE}}
    return json.dumps([{"class": f"{__name__}.BrokenNotifier"}, told])


def told(file: Path) -> list[str]:
    """Return what was told until now."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []

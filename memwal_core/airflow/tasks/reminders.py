"""Tables that cannot be opened fail a task, which calls people: once, and again after hours."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta


class Reminders:
    """When people were last called for each table that cannot be opened.

    Args:
        document: As ``to_dict`` returned it. Times that are not understood count as never.
    """

    def __init__(self, document: object = None) -> None:
        names = document if isinstance(document, dict) else {}
        self._called = {str(name): told for name, text in names.items() if (told := _time(text)) is not None}

    def call(self, names: Iterable[str], now: datetime, every: timedelta) -> set[str]:
        """Return those for which nobody was called lately, and note that somebody is; all others are forgotten.

        Args:
            names: All tables that cannot be opened now.
            now: The time, UTC.
            every: How long one call lasts.
        """
        # A call from the future is another clock's.
        lasting = {name: told for name, told in self._called.items() if timedelta(0) <= now - told < every}
        self._called = {name: lasting.get(name, now) for name in names}
        return set(self._called) - set(lasting)

    def forget(self, names: Collection[str]) -> None:
        """Note that nobody is called for these now."""
        self._called = {name: told for name, told in self._called.items() if name not in names}

    def to_dict(self) -> dict[str, str]:
        """Return JSON-able values."""
        return {name: moment.isoformat() for name, moment in self._called.items()}


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None

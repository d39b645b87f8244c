"""A lease on its way from the task that took it to the tasks that work under it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError

# The holder comes last, because ids of Airflow runs contain colons, plus signs and more.
_TEXT = re.compile(r"(?P<token>[1-9][0-9]*)@(?P<job>[^/:@]+)/(?P<scope>[^/:@]+):(?P<holder>.+)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class LeaseTicket:
    """The claim of one holder to one lease; worthless as soon as another holder has the lease."""

    key: JobKey
    holder: str
    fencing_token: int

    def __str__(self) -> str:
        """Return the text form, for example ``7@merge/table:run-1``."""
        return f"{self.fencing_token}@{self.key}:{self.holder}"

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": self.key.job,
            "scope": self.key.scope,
            "holder": self.holder,
            "fencing_token": self.fencing_token,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> LeaseTicket:
        """Rebuild from ``to_dict``.

        Raises:
            InvalidRequestError: A value is missing or of another kind.
        """
        try:
            text = f"{values['fencing_token']}@{values['job']}/{values['scope']}:{values['holder']}"
        except KeyError as error:
            failure = _no_ticket(str(dict(values)))
            raise failure from error
        return parse_ticket(text)


def parse_ticket(text: str) -> LeaseTicket:
    """Read the text form of a ticket; any other text is an ``InvalidRequestError``."""
    found = _TEXT.fullmatch(text)
    if found is None:
        failure = _no_ticket(text)
        raise failure
    return LeaseTicket(JobKey(found["job"], found["scope"]), found["holder"], int(found["token"]))


def _no_ticket(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        "this is not a lease ticket", remedy="pass the ticket that the task which took the lease returned", text=text
    )

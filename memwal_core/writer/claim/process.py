"""A writer belongs to the process that opened it: a fork has a copy of its rows and epoch, and none of its threads."""

from __future__ import annotations

import os

from memwal_core.errors import InvalidRequestError


class OwnProcess:
    """The process that made this object."""

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether the caller runs in it, and not in a fork of it."""
        return os.getpid() == self._process_id

    def require(self, **facts: object) -> None:
        """Refuse with ``InvalidRequestError`` in a fork: two processes would write under one epoch.

        Args:
            **facts: For the error.
        """
        if not self.is_this:
            raise InvalidRequestError(
                "the writer was opened in another process, of which this one is a fork",
                remedy="open the table and a writer in this process, and let the processes write different regions",
                opened_in=self._process_id,
                this_process=os.getpid(),
                **facts,
            )

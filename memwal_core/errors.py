"""The errors of the package, split by what the caller must do next.

Every error says what happened, with which values (``facts``, also readable as fields), and what to do
next; secrets in the values are replaced. Branch on the class and on ``facts``, never on the text. Errors of other
libraries are translated in ``storage`` and ``base_table`` only.
"""

from __future__ import annotations

from itertools import islice
from reprlib import Repr
from typing import Any, ClassVar

from memwal_core.redaction import redact, redacted


class _InOrder(Repr):
    """Shows the beginning of long values; mappings in their own order, which ``Repr`` sorts."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0 and x:
            return "{...}"
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(x[key], level - 1)}" for key in islice(x, self.maxdict)]
        return f"{{{', '.join([*shown, '...'] if len(x) > self.maxdict else shown)}}}"


_SHOWN = _InOrder()
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxset = _SHOWN.maxfrozenset = _SHOWN.maxdict = 20
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 4_000
"""How much of a fact is in the text of an error: a table may have ten thousand regions."""


class MemwalError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: The problem, one sentence without a full stop.
        remedy: What the reader should do next, in the imperative.
        **facts: The values involved; expected and found where there are both. The text shows the beginning
            of long ones.
    """

    exit_code: ClassVar[int] = 1
    """Exit code of the command-line tools; ``docs/errors.md`` lists them."""

    def __init__(self, what: str, *, remedy: str, **facts: object) -> None:
        self.what = redact(what)
        self.remedy = remedy
        self.facts: dict[str, object] = {name: redacted(value) for name, value in facts.items()}
        listed = ", ".join(f"{key}={_SHOWN.repr(value)}" for key, value in self.facts.items())
        super().__init__(redact(f"{self.what} [{listed}] next: {remedy}" if listed else f"{self.what}; next: {remedy}"))

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts, so that errors cross process borders (Spark, Airflow) whole."""
        return _rebuild, (type(self), self.what, self.remedy, self.facts)


def _rebuild(kind: type[MemwalError], what: str, remedy: str, facts: dict[str, object]) -> MemwalError:
    error = kind.__new__(kind)
    MemwalError.__init__(error, what, remedy=remedy, **facts)
    return error


class ConflictError(MemwalError):
    """Another process changed the state first. Refresh, check again, retry."""

    exit_code = 4


class ObjectExistsError(ConflictError):
    """A put-if-absent found other bytes at the path. Read them before deciding anything."""


class CommitUnknownError(MemwalError):
    """A commit may or may not have landed. Read back by its commit id; delete nothing."""

    exit_code = 4


class FencedError(MemwalError):
    """A newer owner (higher epoch or token) exists. Stop; open a new writer or take a new lease."""

    exit_code = 5


class UnavailableError(MemwalError):
    """Storage or a service did not answer. Back off and retry."""

    exit_code = 4


class BackpressureError(UnavailableError):
    """A region's flush queue stayed full for ``backpressure_timeout_s``. Nothing was written; put again later."""


class InvalidRequestError(MemwalError):
    """The input cannot be accepted; nothing was written. Correct it."""

    exit_code = 2


class StoreRefusedError(MemwalError):
    """The store, or the file system, refused access, which says nothing of what lies there. Correct the permissions."""

    exit_code = 2


class BareExecutorError(InvalidRequestError):
    """An executor lacks the package, what it depends on, or the driver's Python; ``facts`` has its host and Python."""


class ObjectNotFoundError(InvalidRequestError):
    """The object, table or version does not exist at the given address."""


class MissingFileError(ObjectNotFoundError):
    """A file that the table needed when it was looked at is gone: collected since then, or lost. Read again once."""

    exit_code = 5


class CorruptionError(MemwalError):
    """Stored state contradicts itself. Stop, change nothing, follow the runbook."""

    exit_code = 5


class DamagedError(CorruptionError):
    """A file of one region is missing or damaged; ``facts`` has ``region_id``, ``path`` and ``cause``.

    No retry helps. The other regions can be used. Run ``memwal repair``, or restore the file from a copy.
    """

    @classmethod
    def of(cls, region_id: object, path: str, cause: str, **facts: object) -> DamagedError:
        """Return the error of one file; ``path`` is relative to the table's root."""
        return cls(
            "a file of a region is missing or damaged",
            remedy="run `memwal repair`, or restore the file from a copy; other regions can be used meanwhile",
            region_id=str(region_id),
            path=path,
            cause=cause,
            **facts,
        )


class DuplicateKeysError(CorruptionError):
    """The base table holds a primary key more than once, so that no merge can tell which row is the newest.

    ``facts`` has ``rows`` and ``keys``. A job that finds this freezes the table.
    """


class FrozenError(MemwalError):
    """The table is frozen, and nothing was done. Let a person decide with ``memwal thaw``; do not retry.

    ``facts`` has ``causes``, and ``found_now`` if this run found the cause.
    """

    exit_code = 8


class InternalError(MemwalError):
    """A state that the code believes impossible. Report it with its facts."""

    exit_code = 5

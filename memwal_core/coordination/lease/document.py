"""The lease document, and what may change from one version of it to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.document import as_moment, as_number, as_text, encode_document, parse_document

FIRST_TOKEN = 1


@dataclass(frozen=True, slots=True)
class LeaseDocument:
    """One version of a lease.

    Attributes:
        holder: Who holds it, for example the id of an Airflow run.
        fencing_token: Grows by one with each acquisition; renewals and the release keep it.
        acquired_at: When the holder got it, in UTC.
        expires_at: When it ends without renewal, in UTC; not after ``acquired_at`` means released.
        commit_id: Marks the attempt that wrote this version, so that equal requests of two processes differ in
            bytes; empty in documents of other programs.
        renewed_at: What the holder's clock showed at its last renewal, in UTC; None before the first.
    """

    holder: str
    fencing_token: int
    acquired_at: datetime
    expires_at: datetime
    commit_id: str = field(default="", repr=False, compare=False)
    renewed_at: datetime | None = field(default=None, repr=False, compare=False)

    @property
    def released(self) -> bool:
        """Whether the holder released it."""
        return self.expires_at <= self.acquired_at

    def is_free(self, now: datetime, margin: timedelta, ttl: timedelta) -> bool:
        """Return whether another holder may take the lease: it is released, or expired by more than the margin.

        One whose clock was ahead would outlast its holder by that much.
        """
        return self.released or now >= self.expires_at + margin or self.is_ahead(now, ttl)

    def is_ahead(self, now: datetime, ttl: timedelta) -> bool:
        """Return whether a clock took or renewed the lease that is ahead by more than a time to live."""
        return max(self.acquired_at, self.renewed_at or self.acquired_at) > now + ttl


def encode_lease(document: LeaseDocument) -> bytes:
    """Return the bytes of a lease document."""
    return encode_document(
        {
            "holder": document.holder,
            "fencing_token": document.fencing_token,
            "acquired_at": _to_text(document.acquired_at),
            "expires_at": _to_text(document.expires_at),
            "commit_id": document.commit_id,
            **({"renewed_at": _to_text(document.renewed_at)} if document.renewed_at is not None else {}),
        },
        indent=2,
    )


def decode_lease(data: bytes, path: str) -> LeaseDocument:
    """Read a lease document; ``path`` is for the error."""
    try:
        return _from_dict(parse_document(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            "a lease document cannot be read",
            remedy="stop the jobs of this table, find out which program wrote the file, then delete this version of it",
            path=path,
            problem=str(error),
        ) from error


def check_lease_change(old: LeaseDocument | None, new: LeaseDocument) -> None:
    """Check a new version against its predecessor: tokens never fall, and a new holder needs the next token."""
    known = old.fencing_token if old is not None else FIRST_TOKEN - 1
    kept = old is not None and (new.fencing_token, new.holder, new.acquired_at) == (known, old.holder, old.acquired_at)
    if kept or new.fencing_token == known + 1:
        return
    raise InvalidRequestError(
        "a lease can change its holder only together with the next fencing token",
        remedy="read the lease and acquire it again",
        stored_token=known,
        proposed_token=new.fencing_token,
        stored_holder=old.holder if old is not None else None,
        proposed_holder=new.holder,
    )


def _to_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _from_dict(found: dict[str, object]) -> LeaseDocument:
    return LeaseDocument(
        holder=as_text(found["holder"]),
        fencing_token=as_number(found["fencing_token"], at_least=FIRST_TOKEN),
        acquired_at=as_moment(found["acquired_at"]),
        expires_at=as_moment(found["expires_at"]),
        commit_id=as_text(found.get("commit_id", "")),
        renewed_at=as_moment(found["renewed_at"]) if "renewed_at" in found else None,
    )

"""What a batch may be called."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.batch import BatchId

NO_NAMES = ["", None, 0, 7, True, 1.5, b"x", datetime(2026, 1, 1, tzinfo=UTC), "\ud800"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    """A number was taken, and failed with an AttributeError in the middle of the batch."""
    for names in ((name, "b"), ("s", name)):
        with pytest.raises(InvalidRequestError, match=r"as text, or number the batches .* BatchId\.numbered"):
            BatchId(*names)


@pytest.mark.parametrize("number", [-1, 1.5, True, "3"])
def test_a_number_that_is_none_is_refused(number: object) -> None:
    with pytest.raises(InvalidRequestError, match="its number is not one from 0"):
        BatchId.numbered("s", number)  # type: ignore[arg-type]


def test_any_text_is_a_name() -> None:
    for name in (" ", "a/b", "..", "\x00", "é" * 300):
        assert str(BatchId(name, name)) == f"{name}/{name}"
    assert BatchId.numbered("s", 0) == BatchId("s", "0", 0)

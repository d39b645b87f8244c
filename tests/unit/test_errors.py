"""Errors keep their values whole, and show as much of them as somebody reads."""

from __future__ import annotations

import pickle

from memwal_core.errors import CorruptionError


def test_the_text_shows_the_beginning_of_long_values() -> None:
    """The progress of 512 regions made a text of 22,000 characters; tables may have 10,000."""
    progress = {f"region {number:05}": number for number in range(10_000)}
    error = CorruptionError(
        "merge progress went back", remedy="look", found=progress, of=list(progress), by="x" * 9_000
    )

    assert "'region 00019': 19, ...}" in str(error)
    assert len(str(error)) < 6_000
    assert error.facts["found"] == progress
    assert pickle.loads(pickle.dumps(error)).facts == error.facts


def test_short_values_are_shown_as_they_are() -> None:
    error = CorruptionError("merge progress went back", remedy="look", found={"b": 1, "a": (2,)}, path="t/_mem_wal")

    assert str(error) == "merge progress went back [found={'b': 1, 'a': (2,)}, path='t/_mem_wal'] next: look"

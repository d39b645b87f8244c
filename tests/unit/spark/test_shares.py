"""Errors of tasks cross to the driver as what they are, and columns of the table stay columns of the table."""

from __future__ import annotations

import pytest

from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.errors import FencedError, InternalError, InvalidRequestError, MemwalError
from memwal_core.spark.ingest.routed import INTERNAL
from memwal_core.spark.ingest.shares import _described, _rebuilt


@pytest.mark.parametrize("kind", [InvalidRequestError, FencedError, LeaseHeldError])
def test_an_error_is_rebuilt_as_its_own_class(kind: type[MemwalError]) -> None:
    """Classes declared outside of ``errors`` became an ``InternalError``, which is never retried."""
    rebuilt = _rebuilt(_described(kind("it failed", remedy="try", number=7)))
    assert (type(rebuilt), rebuilt.what, rebuilt.facts) == (kind, "it failed", {"number": 7})


def test_an_error_of_an_unknown_class_is_internal() -> None:
    assert type(_rebuilt({"error": "Another", "what": "w", "remedy": "r", "facts": {}})) is InternalError


def test_only_columns_of_routing_are_left_out() -> None:
    """Every column that begins with two underscores was dropped, a column of the table as well."""
    assert "__mine" not in INTERNAL
    assert all(name.startswith("__") for name in INTERNAL)

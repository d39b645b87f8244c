"""Deleting old versions stops as soon as the right to do so is gone."""

from __future__ import annotations

import pytest

from memwal_core.errors import FencedError
from memwal_core.register import VersionedRegister
from memwal_core.storage import open_store


@pytest.mark.req("GC-30")
@pytest.mark.parametrize(("permitted", "left"), [(0, 6), (1, 6), (3, 4), (9, 3)])
def test_deletion_ends_where_the_guard_raises(permitted, left):
    store = open_store("memory://bucket")
    register = VersionedRegister(store, "d", ".json")
    for version in range(1, 7):
        register.create(version, str(version).encode())
    asked = []

    def guard() -> None:
        asked.append(1)
        if len(asked) > permitted:
            raise FencedError("the lease is lost", remedy="stop")

    if permitted < 4:
        with pytest.raises(FencedError):
            register.delete_before(4, before_each=guard)
    else:
        register.delete_before(4, before_each=guard)

    assert register.versions() == list(range(7 - left, 7))
    latest = register.latest()
    assert latest is not None
    assert latest.version == 6

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from testkit.clock import ManualClock


def test_time_stands_still_until_advanced() -> None:
    clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))

    assert clock.now() == clock.now() == datetime(2026, 11, 21, tzinfo=UTC)
    assert clock.monotonic() == 0

    clock.advance(90.5)

    assert clock.now() == datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=90.5)
    assert clock.monotonic() == 90.5


def test_sleep_returns_at_once_and_moves_time() -> None:
    clock = ManualClock()

    clock.sleep(3600)

    assert clock.monotonic() == 3600
    assert clock.sleeps == [3600]


def test_wall_time_may_jump_back_while_monotonic_time_goes_on() -> None:
    clock = ManualClock()
    before = clock.now()
    clock.advance(10)

    clock.jump_wall_time(-60)

    assert clock.now() == before - timedelta(seconds=50)
    assert clock.monotonic() == 10
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)

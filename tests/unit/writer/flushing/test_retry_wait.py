"""How long a failing background flush waits."""

from memwal_core.settings import WriterSettings
from memwal_core.writer.flushing.scheduler import retry_wait_s

SETTINGS = WriterSettings(flush_retry_wait_s=1, flush_retry_wait_max_s=60)


def test_waits_double_up_to_the_longest():
    assert [retry_wait_s(failures, SETTINGS) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_flush_that_failed_for_weeks_still_waits():
    """Doubling in floats overflowed at the 1,025th failure, and ended the thread."""
    assert retry_wait_s(100_000, SETTINGS) == 60

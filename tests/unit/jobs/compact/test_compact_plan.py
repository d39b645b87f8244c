"""Which fragments are worth rewriting."""

from __future__ import annotations

from memwal_core.base_table import FragmentFacts
from memwal_core.jobs.compact.plan import CompactPlan, CompactVerdict, plan_compaction
from memwal_core.settings import MIB, CompactSettings

SETTINGS = CompactSettings(min_fragments=3, target_rows=1000, max_source_fragments=4, max_file_bytes=MIB)
LARGE = 2000


def fragment(number: int, rows: int = 10, *, deleted: int = 0, size_bytes: int | None = 100) -> FragmentFacts:
    return FragmentFacts(number, rows, deleted, size_bytes)


def plan(*rows: int, force: bool = False, settings: CompactSettings = SETTINGS) -> CompactPlan:
    return plan_compaction("/t", 1, [fragment(n, r) for n, r in enumerate(rows)], settings, force=force)


def test_enough_small_neighbours_are_rewritten():
    found = plan(10, 10, 10)
    assert (found.verdict, found.take, found.rows, found.size_bytes) == (CompactVerdict.MANY_SMALL, (0, 1, 2), 30, 300)


def test_too_few_small_neighbours_stay_unless_forced():
    assert (plan(10, 10).verdict, plan(10, 10).take) == (CompactVerdict.TOO_FEW, ())
    assert (plan(10, 10, force=True).verdict, plan(10, 10, force=True).take) == (CompactVerdict.FORCED, (0, 1))


def test_small_fragment_between_large_ones_stays():
    found = plan(LARGE, 10, LARGE, 10, LARGE, force=True)
    assert (found.verdict, found.candidates, found.take) == (CompactVerdict.NONE, 0, ())


def test_half_deleted_fragment_is_rewritten_alone():
    fragments = [fragment(0, LARGE), fragment(1, LARGE, deleted=1200), fragment(2, LARGE)]
    found = plan_compaction("/t", 1, fragments, SETTINGS)
    assert (found.verdict, found.take, found.rows) == (CompactVerdict.DELETIONS, (1,), 800)


def test_share_of_deleted_rows_must_exceed_the_threshold():
    fragments = [fragment(0, 2000, deleted=200)]
    assert plan_compaction("/t", 1, fragments, SETTINGS).verdict is CompactVerdict.NONE


def test_one_pass_takes_the_first_fragments_only():
    found = plan(*[10] * 10)
    assert (found.candidates, found.take) == (10, (0, 1, 2, 3))


def test_pass_of_executors_takes_the_rows_that_one_process_takes_at_most():
    small, large = [fragment(n) for n in range(500)], [fragment(n, 900) for n in range(9)]

    assert plan_compaction("/t", 1, small, SETTINGS, divided=True).take == tuple(range(4 * 1000 // 10))
    assert plan_compaction("/t", 1, large, SETTINGS, divided=True).take == (0, 1, 2, 3)


def test_bound_does_not_leave_a_single_fragment_of_a_run():
    found = plan(10, 10, 10, LARGE, 10, 10)
    assert found.take == (0, 1, 2)


def test_file_that_was_ended_for_its_size_counts_as_full():
    fragments = [fragment(number, 10, size_bytes=MIB) for number in range(5)]
    assert plan_compaction("/t", 1, fragments, SETTINGS, force=True).verdict is CompactVerdict.NONE


def test_full_fragments_that_lost_a_few_rows_are_not_small():
    """Lance counts deleted rows: it rewrote nothing, and every cycle merged all segments of the indexes for it."""
    fragments = [fragment(number, 1000, deleted=1) for number in range(5)]
    assert plan_compaction("/t", 1, fragments, SETTINGS, force=True).verdict is CompactVerdict.NONE


def test_unknown_sizes_count_as_small():
    fragments = [fragment(number, 10, size_bytes=None) for number in range(3)]
    found = plan_compaction("/t", 1, fragments, SETTINGS)
    assert (found.take, found.size_bytes) == ((0, 1, 2), 0)


def test_empty_table_needs_nothing():
    assert plan().verdict is CompactVerdict.NONE


def test_wide_rows_are_read_a_few_at_once():
    settings = SETTINGS.model_copy(update={"batch_bytes": 8 * MIB, "batch_rows": 1024})
    narrow = fragment(0, 100, size_bytes=100 * 64)

    def batch_rows(*further: FragmentFacts) -> int:
        return plan_compaction("/t", 1, [narrow, *further], settings, force=True).batch_rows

    assert batch_rows(fragment(1)) == 1024
    assert batch_rows(fragment(1, size_bytes=None)) == 1024
    assert batch_rows(fragment(1, 2, size_bytes=MIB // 2)) == 32
    assert batch_rows(fragment(1, 4, deleted=1, size_bytes=MIB // 2)) == 64  # Files keep deleted rows.
    wide = SETTINGS.model_copy(update={"batch_bytes": 1000, "max_file_bytes": 100 * MIB})
    assert plan_compaction("/t", 1, [narrow, fragment(1, 1, size_bytes=MIB)], wide, force=True).batch_rows == 1

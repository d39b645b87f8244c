"""Suites of users before a merge."""

from memwal_core.quality.checks.before import distinct_names


def test_suites_of_one_name_are_told_apart() -> None:
    """The second one replaced the reasons of the first."""
    assert [name for name, _ in distinct_names([("a", []), ("b", []), ("a", []), ("a", [])])] == [
        "a",
        "b",
        "a (2)",
        "a (3)",
    ]

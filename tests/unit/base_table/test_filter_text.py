"""What is no filter is refused in words of ours, before Lance panics at it."""

from __future__ import annotations

from typing import Any

import pytest

from memwal_core.base_table.reading.filter_text import MAX_CONDITIONS, MAX_TERM_TOKENS, require_filter
from memwal_core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("filter_sql", "parameter"),
    [
        ("id = ?", "?"), ("id=?1", "?1"), ("id in (?, 2)", "?"), ("$1", "$1"), ("id=$1", "$1"), ("id = $name", "$name"),
        (":a", ":a"), ("id = :a", ":a"), ("s = 'it''s' and id = ?", "?"), ("id = 1 -- 'x\n and id = ?", "?"),
    ],
)  # fmt: skip
def test_filter_with_a_parameter_is_refused_and_the_parameter_named(filter_sql: str, parameter: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        require_filter(filter_sql)
    assert refused.value.facts["parameter"] == parameter


@pytest.mark.parametrize(
    "filter_sql",
    [
        "s = '?'", 's = "?"', "`a?` = 1", "s = ':a'", "s = '$1'", "id = 1 -- why?", "id = 1 /* $1 */", "id::bigint = 1",
        "a$1 = 2", "s = 'it''s :a'", "v[1:2] = 3", "s ~ 'a?'",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_parameter_passes(filter_sql: str) -> None:
    require_filter(filter_sql)


@pytest.mark.parametrize("filter_sql", [5, b"id = 1", ["id = 1"]])
def test_filter_that_is_no_text_is_refused(filter_sql: Any) -> None:
    with pytest.raises(InvalidRequestError):
        require_filter(filter_sql)


DEEPEST = {
    "summands": lambda number: f"id > {' + '.join(['1'] * (number // 2 - 1))}",
    "in parentheses": lambda number: f"id = 1 AND (id > (1 + (2 + {'+'.join(['id'] * (number // 2 - 4))})))",
    "texts": lambda number: f"s = {'||'.join(['s'] * (number // 3))}",
    "tests of NULL": lambda number: f"(id = 1 OR id{' IS NULL' * (number // 2)})",
}


@pytest.mark.parametrize("shape", DEEPEST)
def test_condition_that_nests_more_than_lance_follows_is_refused(shape: str) -> None:
    require_filter(f"id = 2 OR {DEEPEST[shape](MAX_TERM_TOKENS - 2)} AND id = 3")
    with pytest.raises(InvalidRequestError) as refused:
        require_filter(f"id = 2 OR {DEEPEST[shape](MAX_TERM_TOKENS + 10)} AND id = 3")
    assert refused.value.facts["most"] == MAX_TERM_TOKENS


def test_more_conditions_than_lance_evaluates_are_refused_and_counted() -> None:
    require_filter(" OR ".join(["id = 1"] * MAX_CONDITIONS))
    with pytest.raises(InvalidRequestError) as refused:
        require_filter(" or ".join(["id = 1"] * (MAX_CONDITIONS + 1)))
    assert (refused.value.facts["conditions"], refused.value.facts["most"]) == (MAX_CONDITIONS + 1, MAX_CONDITIONS)


@pytest.mark.parametrize(
    "filter_sql",
    [
        f"id IN ({', '.join(map(str, range(50_000)))})",
        f"s = '{' AND + '.join(['x'] * 5_000)}'",
        f"id = 1 -- {' OR + '.join(['x'] * 5_000)}",
        " AND ".join(f"abs(id + {each}) * 2 BETWEEN {each} AND {each + 1}" for each in range(1_000)),
    ],
    ids=["values", "text", "comment", "conditions"],
)
def test_long_filter_that_nests_little_passes(filter_sql: str) -> None:
    require_filter(filter_sql)

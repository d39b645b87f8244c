"""What is no filter is refused in words of ours, before Lance panics at it."""

from __future__ import annotations

from typing import Any

import pytest

from memwal_core.base_table.reading.filter_text import require_filter
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

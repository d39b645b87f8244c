"""Hostile bytes in any file of a table: whoever looks gets rows or an error of ours, and the process survives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from testkit.fuzz.case import Case, cases
from testkit.fuzz.decoders import DECODERS
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.watch import Harm, WatchedWorker, run_cases

_QUICK = len(KINDS)
_QUICK_DECODERS = 20 * len(DECODERS)
_ENOUGH = 600
"""Cases within which a bound that is switched off must be missed."""
_SHOWN = 5
_SLOW = 150
_LONG = 20_000
_PARTS = 10


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedWorker]:
    """Its tables take as long as a dozen cases, so tests share it."""
    with WatchedWorker(tmp_path_factory.mktemp("fuzz")) as shared:
        yield shared


def _require_harmless(worker: WatchedWorker, chosen: Sequence[Case]) -> None:
    """Run cases until a few did harm; there is none."""
    found: list[Harm] = []
    for case in chosen:
        found += worker.run(case)
        if len(found) > _SHOWN:
            break
    assert not found, "\n".join(map(str, found))


def test_hostile_bytes_do_no_harm_to_whoever_looks_at_a_table(worker: WatchedWorker) -> None:
    _require_harmless(worker, cases(range(_QUICK), list(KINDS)))


def test_hostile_bytes_do_no_harm_to_a_decoder(worker: WatchedWorker) -> None:
    _require_harmless(worker, cases(range(_QUICK_DECODERS), list(DECODERS), decoder_only=True))


@pytest.mark.slow
def test_some_hundred_cases_of_hostile_bytes_do_no_harm(worker: WatchedWorker) -> None:
    _require_harmless(worker, cases(range(_QUICK, _QUICK + _SLOW), list(KINDS)))


@pytest.mark.long
@pytest.mark.parametrize("part", range(_PARTS))
def test_many_cases_of_hostile_bytes_do_no_harm(part: int, worker: WatchedWorker) -> None:
    size = _LONG // _PARTS
    first = _QUICK + _SLOW + part * size
    _require_harmless(worker, cases(range(first, first + size), list(KINDS)))


@pytest.mark.long
def test_many_cases_of_hostile_bytes_do_no_harm_to_a_decoder(worker: WatchedWorker) -> None:
    first = _QUICK_DECODERS
    _require_harmless(worker, cases(range(first, first + 5 * _LONG), list(DECODERS), decoder_only=True))


@pytest.mark.slow
def test_without_bounds_of_stored_moments_the_fuzzer_finds_harm(tmp_path: Path) -> None:
    chosen = cases(range(_ENOUGH), ["lease"], decoder_only=True)
    assert "OverflowError" in _first(chosen, tmp_path, "bounds of moments").problem


@pytest.mark.slow
def test_without_spans_of_generations_the_fuzzer_finds_harm(tmp_path: Path) -> None:
    chosen = cases(range(_ENOUGH), ["newest region manifest"], decoder_only=True)
    found = _first(chosen, tmp_path, "spans of generations")
    assert "processor" in found.problem or "MiB" in found.problem or "MemoryError" in found.problem


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "problem"),
    [("survival", "the process ended with -6"), ("an end", "did not end in"), ("modesty", "MiB")],
)
def test_harm_of_a_case_is_found_and_named(missing: str, problem: str, tmp_path: Path) -> None:
    found = _first(cases(range(3, 4), ["lease"], decoder_only=True), tmp_path, missing)
    assert problem in found.problem
    assert "--seed 3 --kind 'lease' --decoders" in str(found)


def _first(chosen: Sequence[Case], directory: Path, missing: str) -> Harm:
    """Return the first finding; there is one."""
    return next(found[0] for _, found in run_cases(chosen, directory, [missing]) if found)

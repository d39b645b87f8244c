"""Whatever people's hands do to a table, nothing wrong is shown or merged, and nothing is refused for no reason.

``testkit.hands`` plays the histories: writers and jobs take turns with hands (S1, S2, S3, S6, S7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from memwal_core.coordination.freeze import reading, watch
from memwal_core.region.census import Census, CensusTaker
from testkit.hands import HistoryFailedError, Made, play
from testkit.hands.clients import LANCEDB, OURS, PYLANCE, Client
from testkit.hands.damage import DAMAGE_HANDS
from testkit.hands.table_hands import TABLE_HANDS
from testkit.powercut.record import temporary_directory

HISTORIES = 16
MANY_HISTORIES = 300
CHUNK = 50
SHOWN = 3
TRIES = 20


def played(seeds: Sequence[int]) -> Iterator[str]:
    """Play histories, and return those that went wrong."""
    for seed in seeds:
        with temporary_directory() as directory:
            try:
                play(seed, directory)
            except HistoryFailedError as error:
                yield str(error)


def test_histories_show_nothing_wrong_and_refuse_nothing_for_no_reason() -> None:
    failed = list(played(range(HISTORIES)))
    assert not failed, "\n".join(failed[:SHOWN])


@pytest.mark.long
@pytest.mark.parametrize("first", range(HISTORIES, HISTORIES + MANY_HISTORIES, CHUNK))
def test_many_histories_show_nothing_wrong_and_refuse_nothing_for_no_reason(first: int) -> None:
    failed = list(played(range(first, first + CHUNK)))
    assert not failed, "\n".join(failed[:SHOWN])


def without_watch(patch: pytest.MonkeyPatch) -> None:
    """Compare nothing with the maintenance record."""
    patch.setattr(watch, "compare", lambda *_: ())
    patch.setattr(watch, "first_look", lambda *_: ())


def without_comparison_of_readers(patch: pytest.MonkeyPatch) -> None:
    """Let readers take every region for the one that was seen."""
    patch.setattr(reading, "compare", lambda *_: ())


def without_census(patch: pytest.MonkeyPatch) -> None:
    """Take the regions that are listed for all there are."""
    patch.setattr(CensusTaker, "take", lambda taker, *_: taker.read(taker._manifests.region_ids()))
    patch.setattr(Census, "with_known", lambda census, *_: census)


@pytest.mark.parametrize(
    ("switch_off", "client", "hands", "seed", "wrong"),
    [
        (without_watch, LANCEDB, ("overwrite", "enable"), 9, "base table: wrong rows"),
        pytest.param(
            *(without_comparison_of_readers, PYLANCE, ("clone",), 36, "scan: wrong rows"), marks=pytest.mark.slow
        ),
        (without_comparison_of_readers, PYLANCE, ("overwrite", "enable", "restore"), 0, "scan: does not warn"),
        (without_census, OURS, ("remove region",), 0, "scan: wrong rows"),
    ],
    ids=["watch", "readers that refuse", "readers that warn", "census"],
)
def test_without_a_guard_a_history_ends_in_wrong_rows(
    switch_off: Callable[[pytest.MonkeyPatch], None], client: Client, hands: Sequence[str], seed: int, wrong: str
) -> None:
    chosen = {name: hand for name, hand in {**TABLE_HANDS, **DAMAGE_HANDS}.items() if name in hands}
    made = Made("lance", packs=False, has_links=True)

    def problem(seed: int) -> str:
        with temporary_directory() as directory:
            try:
                play(seed, directory, clients=(client,), hands=chosen, made=made, steps=20)
            except HistoryFailedError as error:
                return error.problem
        return ""

    with pytest.MonkeyPatch.context() as patch:
        switch_off(patch)
        tried = (problem(each) for each in range(seed, seed + TRIES))
        assert any(wrong in each for each in tried)
    assert not problem(seed), "it goes wrong with the guard, too"

"""The list of mutants fits the tree, and a survivor is told from one that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutate import ROOT, Mutant, SafetyModule, Trial, listed, main, random_mutants, sample

MUTANTS, MODULES = listed()
SOURCE = "@rule(frozen=True)\ndef allowed(age, limit):\n    return age < limit and not age == 7\n"
MODULE = SafetyModule("rule.py", ("tests",))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_of_the_list_changes_its_module_and_names_tests_that_exist(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text()

    assert mutant.applied(source) != source
    assert mutant.tests
    assert [path for path in mutant.tests if not (ROOT / path).exists()] == []


def test_names_of_the_list_are_unique() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_module_for_random_mutants_has_some_and_its_tests_exist(module: SafetyModule) -> None:
    assert len(list(random_mutants(module, (ROOT / module.path).read_text()))) > 3
    assert [path for path in module.tests if not (ROOT / path).exists()] == []


def test_random_mutants_change_one_place_each() -> None:
    found = {each.applied(SOURCE).splitlines()[2].strip() for each in random_mutants(MODULE, SOURCE)}

    assert found == {
        "return (age < limit or not age == 7)",
        "return (age <= limit) and not age == 7",
        "return age < limit and (age == 7)",
        "return age < limit and not (age != 7)",
    }


def test_sample_is_the_same_for_the_same_seed() -> None:
    assert sample(MODULES, 5, 1) == sample(MODULES, 5, 1) != sample(MODULES, 5, 2)


def test_interrupted_sample_goes_on_where_it_was_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(Trial, "__init__", lambda *_: None)
    monkeypatch.setattr(Trial, "survives", lambda _, mutant: tried.append(mutant.name))

    assert main(["--random", "5", "--seed", "1", "--from", "3"]) == 0
    assert tried == [mutant.name for mutant in sample(MODULES, 5, 1)[3:]]
    assert "2 of 2 killed" in capsys.readouterr().out


def test_text_that_occurs_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Mutant("m", "r", "rule.py", "age <", "age >", ()).applied(SOURCE + SOURCE)


@pytest.mark.slow
def test_mutant_that_no_test_notices_survives_and_another_is_killed(tmp_path: Path) -> None:
    tests = ("tests/unit/register/test_versioned.py",)
    (killed,) = [each for each in MUTANTS if each.name == "register-compare-and-swap"]
    harmless = Mutant("m", "a word of a log line", killed.path, "foreign object ignored", "foreign object seen", tests)
    trial = Trial(tmp_path)

    assert trial.survives(harmless)
    assert not trial.survives(Mutant(killed.name, killed.rule, killed.path, killed.old, killed.new, tests))


@pytest.mark.long
def test_sample_of_the_list_is_killed(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    assert [mutant.name for mutant in MUTANTS[::3] if trial.survives(mutant)] == []

"""Documents say what is: links, names, commands and tables are compared with the tree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from memwal_core import errors
from memwal_core.jobs.outcome import JobOutcome
from tools import generate_jobs_doc, generate_requirements_doc, generate_settings_doc

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUNBOOK_SECTIONS = [
    "What you see",
    "What is at risk",
    "What to run",
    "How to know that it worked",
    "When to call whom",
]
RUNBOOK_STEPS = ["Look first", "Find the cause", "Mend it", "To take it back", "Never"]
DECISION_SECTIONS = ["Context", "Choice", "Rejected", "Consequences", "Tests"]
STATUS = re.compile(r"^Status: (proposed|accepted|superseded by \[\d{4}\]\(\S+\)), \d{4}-\d{2}-\d{2}(;.*)?$")

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
# A path inside the repository, without wildcards (docs/src is in Lance's).
REPOSITORY_PATH = re.compile(
    r"^(?:memwal_core|testkit|demo|tests|docs(?!/src)|proto|tools|jobs|dags|plugins|bench)/[\w./-]*[\w/]$|^requirements[\w-]*\.lock$"
)
MACHINE_PATH = re.compile(r"(?<![\w./:}])/(?:home|root|work|tmp|Users|mnt|opt)/\w")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _children_of_package() -> set[str]:
    package = ROOT / "memwal_core"
    modules = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def _layers_in_contract() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in layers]


def _layers_in_architecture() -> list[list[str]]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| Layer, top to bottom |")[2].partition("\n\n")[0]
    return [CODE.findall(line.split("|")[1]) for line in table.splitlines()[2:]]


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("document", PAGES, ids=_name)
def test_relative_links_lead_to_files(document: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(document.read_text()) if "://" not in link]

    assert [target for target in targets if target and not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", PAGES, ids=_name)
def test_paths_in_the_repository_exist(document: Path) -> None:
    named = {name for name in CODE.findall(document.read_text()) if REPOSITORY_PATH.match(name)}

    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("document", PAGES, ids=_name)
def test_make_commands_are_targets(document: Path) -> None:
    text = document.read_text()
    code = [*CODE.findall(text), *"\n".join(FENCED.findall(text)).splitlines()]
    commands = {found[1] for line in code if (found := re.match(r"make ([a-z-]+)", line))}

    assert sorted(commands - _make_targets()) == []


@pytest.mark.parametrize("document", PAGES, ids=_name)
def test_pages_name_no_place_on_somebodys_machine(document: Path) -> None:
    assert MACHINE_PATH.findall(document.read_text()) == []


@pytest.mark.parametrize("decision", DECISIONS, ids=_name)
def test_decision_has_a_status_and_its_sections(decision: Path) -> None:
    lines = decision.read_text().splitlines()

    assert lines[0].startswith(f"# {decision.name[:4]} ")
    assert STATUS.match(lines[2])
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == DECISION_SECTIONS


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_decisions_cited_in_code_exist() -> None:
    numbers = {path.name[:4] for path in DECISIONS}
    sources = [path for top in ("memwal_core", "proto", "tools", "tests") for path in (ROOT / top).rglob("*")]
    cited = {
        number: _name(path)
        for path in sources
        if path.suffix in {".py", ".proto", ".sh"}
        for number in re.findall(r"decision (\d{4})", path.read_text())
    }

    assert {number: path for number, path in cited.items() if number not in numbers} == {}


def test_documents_cited_in_code_exist() -> None:
    sources = [path for top in ("memwal_core", "jobs", "dags", "plugins", "proto") for path in (ROOT / top).rglob("*")]
    cited = {
        (_name(path), page)
        for path in sources
        if path.suffix in {".py", ".proto"}
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())
    }

    assert sorted(pair for pair in cited if not (ROOT / pair[1]).exists()) == []


@pytest.mark.parametrize("runbook", sorted((ROOT / "docs" / "runbooks").glob("*.md")), ids=_name)
def test_runbook_has_its_sections(runbook: Path) -> None:
    text = runbook.read_text()

    assert re.findall(r"^## (.+)$", text, re.M) == RUNBOOK_SECTIONS
    assert re.findall(r"^### (.+)$", text, re.M) == RUNBOOK_STEPS


def test_architecture_places_every_module_of_the_package() -> None:
    assert {name for layer in _layers_in_architecture() for name in layer} == _children_of_package()


def test_architecture_shows_the_layers_that_the_linter_enforces() -> None:
    existing = _children_of_package()
    enforced = [{name for name in layer if name in existing} for layer in _layers_in_contract()]

    assert [set(layer) for layer in _layers_in_architecture()] == [layer for layer in enforced if layer]


def test_architecture_shows_the_layers_of_what_dags_are_made_of() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = next(contract["layers"] for contract in contracts if contract["id"] == "airflow-layers")
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| Module of `memwal_core.airflow` |")[2].partition("\n\n")[0]

    shown = [set(CODE.findall(line.split("|")[1])) for line in table.splitlines()[2:]]

    assert shown == [set(re.findall(r"\w+", layer)) for layer in enforced]


def test_error_page_has_every_class_with_its_exit_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    classes = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MemwalError) and kind is not errors.MemwalError
    }

    assert {name: int(code) for name, code in rows} == classes


@pytest.mark.parametrize("generator", [generate_settings_doc, generate_jobs_doc, generate_requirements_doc])
def test_generated_page_is_what_the_code_generates(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.page(), "next: make docs-pages"


def test_readme_gives_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()

    assert re.search(r"^make demo\b", text, re.M)
    assert re.search(r"^make test\b", text, re.M)


def test_tests_named_in_documents_exist() -> None:
    existing = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.M)
    }
    named = {
        (_name(document), name)
        for document in PAGES
        for name in CODE.findall(document.read_text())
        if re.fullmatch(r"test_\w+", name)
    }

    assert sorted(pair for pair in named if pair[1] not in existing) == []


def test_error_page_has_every_outcome_with_its_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    assert {name: int(code) for code, name in rows} == {outcome.value: outcome.exit_code for outcome in JobOutcome}

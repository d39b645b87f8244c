"""Examples of pages are run as they stand, and print what the pages show.

A `console` block shows what its commands print; of a `bash` block they must succeed. A `python` block is run, and each
`print(...)  # text` must print that text, unless the page says to save it as a file. ``UPDATE_PAGES=1`` writes the
outputs of `console` blocks into the pages; look at the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import lance
import pyarrow as pa
import pytest

import memwal_core
from memwal_core.cli import app
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.document import load_document
from memwal_core.registry import parse_registry
from memwal_core.table import Table
from testkit.s3_server import s3_server
from testkit.tables.people import make_people_table, people

ROOT = Path(__file__).resolve().parents[2]
WELL = {0, 3}
"""How a command may end: it did something, or there was nothing to do."""
ENDING = "; echo $?"
KINDS = ("python", "console", "bash")
BLOCK = re.compile(rf"^```({'|'.join(KINDS)})\n(.*?)^```$", re.M | re.S)
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
APPLICATION = re.compile(r"jobs/(\w+)\.py\s+'(\{.*?\})'", re.S)
ONE_OF_MANY = re.compile(r"(?<![\d.,(=/-])1 (?:[A-Za-z]+ )?[a-zA-Z]+[^s\W]s(?=[ ,;:)]|$)", re.M)
FILE = re.compile(r"Save this as `(\w+\.py)`")
PROMISED = re.compile(r"print\(.*\)  # (.+)$", re.M)
# What differs from run to run, and what a page shows instead.
CHANGES = [
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "5f0c1b90-2d4e-4a61-9b8e-0c7d3a1e6f25"),
    (re.compile(r"\b\d+\.\d\d(?= s\b)"), "0.42"),
    (re.compile(r"(?<=│ )\d+\.\d\d +(?=│)"), "0.42    "),
    (re.compile(r"(?<=age )\d+(?= of)"), "3"),
    (re.compile(r"\b\d\d,\d\d\d(?= B$)", re.M), "40,328"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+"), "2026-11-25T06:40:42.017041"),
    (re.compile(r" +$", re.M), ""),
]  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """What a page supposes to be there.

    Attributes:
        set_up: Makes it in the working directory.
        pretended: What the page calls something -> what stands for it here.
        on_s3: Whether it needs an S3 server, at the address in `$ENDPOINT`.
    """

    set_up: Callable[[], None] = lambda: None
    pretended: Mapping[str, str] = field(default_factory=dict)
    on_s3: bool = False


def shown(text: str, directory: Path) -> str:
    """Return an output as a page shows it."""
    text = text.replace(str(directory), ".").replace(f"{directory}/".lstrip("/"), "")
    for pattern, instead in CHANGES:
        text = pattern.sub(instead, text)
    return text.strip("\n")


def run_memwal(arguments: list[str]) -> tuple[int, str]:
    """Run our command in this process; return how it ends and what it prints."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", ["memwal", *arguments])
        patch.setattr(app, "log_redacted", lambda _level: None)
        with pytest.raises(SystemExit) as ended:
            app.run()
    return int(ended.value.code or 0), said.getvalue()


def run(line: str) -> str:
    """Run one command of a page in this process, and return what it prints."""
    program, *arguments = shlex.split(os.path.expandvars(line.removesuffix(ENDING)), comments=True)
    if program == "export":
        os.environ.update(each.split("=", 1) for each in arguments)
        return ""
    if program == "memwal":
        code, said = run_memwal(arguments)
        if line.endswith(ENDING):
            return f"{said}{code}\n"
        assert code in WELL, (line, code, said)
        return said
    assert program == "python", line
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if arguments[0] == "-c":
            exec(arguments[1], {})
        else:
            runpy.run_path(arguments[0])
    return printed.getvalue()


def run_python(body: str, names: dict[str, object]) -> None:
    """Run a block, which must print what its comments promise."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "page", "exec"), names)
    said = printed.getvalue().splitlines()
    assert [line for line in PROMISED.findall(body) if line not in said] == [], said


def commands_of(body: str) -> Iterator[str]:
    """Yield the commands of a block without outputs, which may go over several lines."""
    yield from (line for line in body.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#")


def first_line(body: str) -> str:
    return next(line.strip() for line in body.splitlines() if line.strip())


class Play:
    """Runs the examples of one page in a directory, whose Python blocks see each other's names."""

    def __init__(self, page: str, directory: Path) -> None:
        self.text = (ROOT / page).read_text()
        self._directory = directory
        self._pretended = STAGES[page].pretended
        self._elsewhere = tuple(ELSEWHERE.get(page, ()))
        self._names: dict[str, object] = {}
        self._from = 0

    def played(self) -> str:
        """Return the page with the outputs that its commands have now."""
        return BLOCK.sub(self._play, self.text)

    def _play(self, found: re.Match[str]) -> str:
        kind, body = found.groups()
        files = FILE.findall(self.text[self._from : found.start()])
        self._from = found.end()
        if self._elsewhere and first_line(body).startswith(self._elsewhere):
            return found[0]
        if kind == "console":
            return f"```console\n{''.join(map(self._answered, body.splitlines()))}```"
        if kind == "bash":
            for line in commands_of(body):
                self._run(line)
        elif files:
            (self._directory / files[-1]).write_text(body)
        else:
            run_python(body, self._names)
        return found[0]

    def _answered(self, line: str) -> str:
        if not line.startswith("$ "):
            return ""
        said = self._run(line.removeprefix("$ "))
        for theirs, ours in self._pretended.items():
            said = said.replace(ours, theirs)
        said = shown(said, self._directory)
        return f"{line}\n{said}\n" if said else f"{line}\n"

    def _run(self, line: str) -> str:
        for theirs, ours in self._pretended.items():
            line = line.replace(theirs, ours)
        return run(line)


def some_people(uri: str = "people.lance") -> None:
    """Six people, of whom two are merged, three flushed and one in the WAL."""
    make_people_table(uri, rows=people(1, 2), buckets=1)
    table = Table.open(uri)
    with table.writer() as writer:
        writer.put(people(3, 7, 8))
        writer.flush()
        writer.put(people(9))


def plain_orders() -> None:
    """A table of Lance's own, without regions."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("tenant", pa.string(), nullable=False)])
    lance.write_dataset(pa.table({"id": [1], "tenant": ["a"]}, schema=schema), "orders.lance")


def moved_people() -> None:
    some_people("old.lance")
    assert run_memwal(["merge", "old.lance"])[0] == 0  # From now on jobs remember where the table is.
    Path("old.lance").rename("people.lance")


def people_and_articles() -> None:
    some_people()
    schema = pa.schema([("id", pa.int64()), ("title", pa.string()), ("vec", pa.list_(pa.float32(), 2))])
    with memwal_core.create("articles.lance", schema, key="id").writer() as writer:
        writer.put(pa.table({"id": [1], "title": ["some words"], "vec": [[0.1, 0.2]]}, schema=schema))
        writer.flush()
    assert run_memwal(["merge", "articles.lance"])[0] == 0
    lance.dataset("articles.lance").create_scalar_index("title", "INVERTED")


def orders_on_s3() -> None:
    boto3.client("s3").create_bucket(Bucket="lake")
    make_people_table("s3://lake/orders.lance")


STAGES = {
    "README.md": Stage(),
    "docs/index.md": Stage(),
    "docs/tutorial.md": Stage(),
    "docs/writing.md": Stage(plain_orders),
    "docs/reading.md": Stage(people_and_articles),
    "docs/errors.md": Stage(),
    "docs/jobs.md": Stage(some_people),
    "docs/copies.md": Stage(moved_people),
    "docs/object-stores.md": Stage(
        orders_on_s3,
        {
            "https://s3-a:9000": "$ENDPOINT",
            "https://s3-b:9000": "$ENDPOINT",
            "--rounds 1000": "--rounds 5",
            "https://s3.example.org": "$ENDPOINT",
            "=...": "=test",
        },
        on_s3=True,
    ),
}
INSTALLS = "it installs programs or packages; test_package.py installs this one with plain pip"
FOREVER = "it runs until it is stopped; test_watch.py and test_maintain_registry.py run the command"
OF_THE_REPOSITORY = "it runs tests of this repository, for minutes or hours"
DOCUMENT = "test_documents_of_spark_applications_are_understood"
# Examples that no page is played with: how they begin -> which test runs them, or why none can.
ELSEWHERE = {
    "CONTRIBUTING.md": {"make setup": OF_THE_REPOSITORY},
    "README.md": {
        "apt-get install": INSTALLS,
        "make demo": "test_demonstration_ends_with_exactly_the_expected_rows",
        "pip install": INSTALLS,
    },
    "docs/airflow.md": {"": "test_commands_of_the_page_maintain_a_table"},
    "docs/freeze.md": {"memwal thaw": "test_runbook_leads_from_its_situation_to_a_sound_table"},
    "docs/index.md": {"pip install": INSTALLS},
    "docs/jobs.md": {"spark-submit": DOCUMENT},
    "docs/kubernetes.md": {"": "there is no Kubernetes here, and the page says that nothing of it was run"},
    "docs/lancedb.md": {"": "test_commands_of_the_page_change_no_answer_of_the_client"},
    "docs/operating.md": {
        "make up": "test_up_on_a_running_stack_changes_nothing_and_shows_the_login",
        '{"tables": ': "test_verification_says_what_it_found_as_the_page_does",
        "spark-submit": DOCUMENT,
        "memwal ingest": DOCUMENT,
        "export MAINTENANCE_NOTIFIERS": "test_notifiers_of_the_page_are_understood",
        "exclude = ": "test_registry_of_the_page_is_understood",
        "deploy/make_secrets.sh": "there is no Docker here; test_compose.py reads the file",
    },
    "docs/reading.md": {"from memwal_core.spark": "test_example_reads_writes_and_streams"},
    "docs/service.md": {"memwal maintain": FOREVER},
    "docs/spark.md": {
        "spark-submit": DOCUMENT,
        "python -m venv": INSTALLS,
        "cp memwal_core": DOCUMENT,
        "# Standalone": "there is no YARN and no Kubernetes here, as the page says; test_spark_jobs.py has a cluster",
    },
    "docs/testing.md": {"": OF_THE_REPOSITORY},
    "docs/tutorial.md": {"python3 -m venv": INSTALLS},
    "docs/upgrading.md": {"pip install": INSTALLS},
    "docs/watching.md": {
        "memwal watch": FOREVER,
        "# prometheus.yaml": "test_configuration_of_the_page_is_understood",
        "# alertmanager.yaml": "test_route_of_the_page_groups_by_a_label_of_the_rules_and_leads_every_page_to_a_person",
    },
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and text of what a page shows in a fence, pictures and outputs left out."""
    yield from ((kind, body) for _, kind, body in FENCED.findall(page.read_text()) if kind != "text")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_is_run_or_says_why_not(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    elsewhere = ELSEWHERE.get(name, {})
    found = [(kind, first_line(body)) for kind, body in examples(page)]
    is_played = {line: name in STAGES and kind in KINDS for kind, line in found}

    assert [line for _, line in found if not (is_played[line] or line.startswith(tuple(elsewhere)))] == []
    assert [start for start in elsewhere if not any(line.startswith(start) for _, line in found)] == []


def test_tests_that_run_examples_exist() -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    named = {name for each in ELSEWHERE.values() for why in each.values() for name in re.findall(r"\btest_\w+", why)}

    assert len(named) > 8
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert [name for name in named if name not in files and not any(f"def {name}(" in text for text in texts)] == []


def test_documents_of_spark_applications_are_understood() -> None:
    jobs = [job for page in PAGES for _, body in examples(page) for job in APPLICATION.findall(body)]

    assert len(jobs) > 15
    assert {load_document(text).model_copy(update={"job": job}).parsed().info.name for job, text in jobs} == {
        request.info.name for request in REQUESTS
    }


def test_registry_of_the_page_is_understood(tmp_path: Path) -> None:
    [text] = [body for kind, body in examples(ROOT / "docs" / "operating.md") if kind == "toml"]
    (tmp_path / "suites").mkdir()
    for name in ("orders.py", "rows.json"):
        (tmp_path / "suites" / name).touch()

    registry = parse_registry(text, str(tmp_path / "tables.toml"))

    assert ([table.name for table in registry.maintained], registry.broken) == (["orders"], ())


SLOW = {"docs/tutorial.md", "docs/object-stores.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in STAGES]
)
def test_examples_of_a_page_print_what_it_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    stage = STAGES[page]
    with s3_server() if stage.on_s3 else contextlib.nullcontext() as server:
        if server is not None:
            reached = {**server.environment(), "AWS_ENDPOINT_URL": server.endpoint, "ENDPOINT": server.endpoint}
            for name, value in reached.items():
                monkeypatch.setenv(name, value)
        stage.set_up()
        play = Play(page, tmp_path)

        now = play.played()

    if "UPDATE_PAGES" in os.environ:
        (ROOT / page).write_text(now)
    assert now == play.text
    assert ONE_OF_MANY.findall(now) == []

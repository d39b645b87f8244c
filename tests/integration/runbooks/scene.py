"""The place of a drill: a real table, what was acknowledged, and the person who follows a runbook."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
from click.testing import Result
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import MemwalError
from memwal_core.format.paths import region_directory
from memwal_core.ids import RegionId
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.tables.people import people
from tests.integration.runbooks.book import LOOK, PROVE, Book

ROWS = {1: "new", 2: "p2", 3: "new", 4: "new"}
"""What readers see of the table before anything happens to it."""
LOOKED = frozenset({0, 3, 5, 6, 7, 8})
"""How a command may end that only looks at a table that is not well."""
WELL = frozenset({0, 3})


@dataclass
class Scene:
    """A table with one region, whose runbook somebody follows.

    Attributes:
        uri: The table; changes if it is moved.
        book: The page that is drilled.
        rows: Key -> name of what readers must see at the end.
        values: Names in the page -> what the person puts there.
        environment: Settings that the operator has.
    """

    uri: str
    book: Book
    rows: dict[int, str]
    values: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(self.uri)

    @property
    def aside(self) -> Path:
        """A place beside the table, where backups lie."""
        return self.path.parent / "aside"

    @property
    def table(self) -> Table:
        return Table.open(self.uri)

    @property
    def vandal(self) -> Vandal:
        return Vandal(self.table.base)

    @property
    def region(self) -> RegionId:
        [found] = self.table.opened.manifests.region_ids()
        return found

    @property
    def region_path(self) -> Path:
        return self.path / region_directory(self.region)

    def put(self, *ids: int, name: str, flush: bool = True) -> None:
        """Write rows through a writer that closes, and remember them."""
        with TableWriter.open(self.table.base) as writer:
            writer.put(people(*ids, name=name))
            if flush:
                writer.flush()
        self.rows |= dict.fromkeys(ids, name)

    def past(self, **ago: float) -> Table:
        """Return the table as seen by a process some time ago."""
        return Table.open(self.uri, clock=ManualClock(datetime.now(tz=UTC) - timedelta(**ago)))

    def ran(self, job: str, *, hours: float = 0.0, **end: object) -> None:
        """Record a run that ended now, as a job in another process would."""
        opened = self.past(hours=hours).opened
        run = opened.new_run(JobKey(job), "elsewhere")
        ended = run.started + timedelta(hours=hours or 0.001)
        opened.ledger.end(run, RunEnd(ended, **{"outcome": RunOutcome.DONE, **end}))  # type: ignore[arg-type]

    def age(self, below: Path, **ago: float) -> None:
        """Let files be older than they are."""
        then = time.time() - timedelta(**ago).total_seconds()
        for file in [below, *below.rglob("*")]:
            os.utime(file, (then, then))

    def set_aside(self, path: Path) -> Callable[[], None]:
        """Move a file or directory out of the table, and return what puts it back where it was."""
        self.aside.mkdir(exist_ok=True)
        kept = self.aside / path.name
        shutil.move(path, kept)
        return lambda: shutil.move(kept, path)

    def run(self, command: str) -> Result:
        """Run a command as the page has it, through the command line's entry point."""
        values = {"TABLE": self.uri, **self.values}
        if "$REGION" in command:
            values.setdefault("REGION", str(self.region))
        for name, value in values.items():
            command = command.replace(f"${name}", value)
        words = [self.values.get(word, word) for word in shlex.split(command)]
        return CliRunner().invoke(app, words[1:], env={"COLUMNS": "300", **self.environment})

    def follow(self, command: str, *, ends: int = 0) -> str:
        """Type a command that stands in the page, word for word; return what it printed."""
        assert self.book.has(command), f"{self.book.page} does not have {command}"
        done = self.run(command)
        assert code_of(done) == ends, (command, code_of(done), done.output, done.exception)
        return done.stdout

    def evaluate(self, expression: str, **values: object) -> None:
        """Evaluate an expression that stands in the page, word for word."""
        assert self.book.has(expression), f"{self.book.page} does not have {expression}"
        eval(expression, {"lance": lance, "uri": self.uri, **values})  # noqa: S307 - the page is ours

    def look(self) -> None:
        """Run everything under *Look first*: it must work on the table as it is."""
        for program in self.book.programs(LOOK):
            exec(program, {"uri": self.uri, "print": lambda *_: None})
        commands = self.book.commands(LOOK)
        assert commands, "a runbook begins with a look"
        for command in commands:
            done = self.run(command)
            assert code_of(done) in LOOKED, (command, done.output, done.exception)

    def pages_named(self) -> set[str]:
        """Return the runbooks that `status --check` and `doctor` lead to now, as far as both do."""
        return _named(self.judged("memwal status $TABLE --check --json")) & _named(
            self.judged("memwal doctor $TABLE --json")
        )

    def judged(self, command: str) -> Mapping[str, Any]:
        done = self.run(command)
        assert code_of(done) in LOOKED, (command, done.output, done.exception)
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def prove(self) -> None:
        """Run what the page says proves the repair; then the table is well, writable, and has the right rows."""
        for command in self.book.commands(PROVE):
            done = self.run(command)
            assert code_of(done) in WELL, (command, code_of(done), done.output, done.exception)
        for command in ("memwal status $TABLE --check --json", "memwal doctor $TABLE --json"):
            found = self.judged(command)
            urgent = [(each["finding"], each["subject"], each["summary"]) for each in found["findings"]]
            assert urgent == [], command
            assert found["healthy"], command
        assert self.seen() == self.rows, "other rows"
        self.put(9000, name="afterwards")
        done = self.run("memwal merge $TABLE")
        assert code_of(done) in WELL, (done.output, done.exception)
        assert self.seen() == self.rows
        assert self.seen(base=True) == self.rows

    def seen(self, *, base: bool = False) -> dict[int, str]:
        """Return what readers see, or what the base table alone holds, as key -> name; no key twice."""
        found = lance.dataset(self.uri).to_table() if base else self.table.to_arrow(consistency="durable")
        ids, names = found["id"].to_pylist(), found["name"].to_pylist()
        assert len(set(ids)) == len(ids), "a key twice"
        return dict(zip(ids, names, strict=True))


def code_of(done: Result) -> int:
    """Return the exit code of the process that the command would have been."""
    return done.exception.exit_code if isinstance(done.exception, MemwalError) else done.exit_code


def _named(found: Mapping[str, Any]) -> set[str]:
    late = [each for each in found["signals"] if each["level"] in ("warn", "page")]
    urgent = [each for each in found["findings"] if each["severity"] != "info"]
    return {each["runbook"] for each in [*late, *urgent]}


Play = Callable[[Scene], Iterator[None]]


@dataclass(frozen=True)
class Drill:
    """What happens to a table, and which steps of the page mend it.

    Attributes:
        page: Name of the runbook.
        play: Makes the situation, yields when somebody shall look, follows the page, and ends.
        slow: Whether it is left out of `make test`.
        spark: Whether its commands run Spark.
    """

    page: str
    play: Play
    slow: bool
    spark: bool

    def __str__(self) -> str:
        return f"{self.page}-{self.play.__name__}"


DRILLS: list[Drill] = []


def drill(page: str, *, slow: bool = True, spark: bool = False) -> Callable[[Play], Play]:
    """Register a drill of a runbook."""

    def registered(play: Play) -> Play:
        DRILLS.append(Drill(page, play, slow, spark))
        return play

    return registered


def follow_runbook(each: Drill, uri: str) -> None:
    """Make a situation, see that both commands name its page, look, follow the page, and prove the table well."""
    scene = Scene(uri, Book(each.page), dict(ROWS), {"TEXT": "drilled"})
    steps = each.play(scene)
    next(steps)
    named = scene.pages_named()
    assert scene.book.page in named, named
    scene.look()
    assert next(steps, "ended") == "ended"
    scene.prove()

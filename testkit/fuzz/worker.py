"""The process in which cases run: it makes its tables, and then takes one case after another from its input.

A case changes one file, and everything looks at the table. The worker says before each look what it is about to do, so
that whoever watches knows what it died of.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from memwal_core.errors import MemwalError
from testkit.fuzz import decoders
from testkit.fuzz.case import Attack, Case
from testkit.fuzz.footprint import differences, footprint, footprint_of
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.looks import WRITING, Look, looks_of
from testkit.fuzz.tables import make_tables
from testkit.fuzz.without import WITHOUT

_KEPT_FRAMES = 14
ROOM_BYTES = 4 << 30
"""Address space beyond what the process has when its tables are made: whoever asks for more gets nothing."""


class Worker:
    """Runs cases.

    Args:
        directory: Empty; everything lies in it.
    """

    def __init__(self, directory: Path) -> None:
        """Make the tables."""
        self._scratch = directory / "scratch"
        self._scratch.mkdir()
        tempfile.tempdir = str(self._scratch)
        self._place = directory / "tables"
        self._place.mkdir()
        self._tables: Mapping[str, Path] = make_tables(self._place)
        self._kept = directory / "kept"
        shutil.copytree(self._place, self._kept, symlinks=True)
        self._sound = footprint(self._place)

    def run(self, case: Case) -> list[str]:
        """Run a case; what was wrong."""
        attack = case.attack(self._tables)
        _say({"attack": str(attack)})
        if case.decoder_only:
            return self._look("decoder", lambda _: decoders.DECODERS[case.kind](attack), attack)
        before = attack.path.read_bytes() if attack.path.exists() else None
        try:
            _write(attack.path, attack.data)
        except (OSError, ValueError):
            return []  # The disk does not take such a name.
        looks = looks_of(case.seed // len(KINDS))
        if KINDS[case.kind].for_writers:
            looks |= WRITING
        expected = {**self._sound, **footprint_of(attack.path)}
        problems = [problem for name, look in looks.items() for problem in self._look(name, look, attack)]
        changed = differences(expected, footprint(self._place))
        problems += [f"disk: {each}" for each in changed] + self._left_behind()
        self._restore(attack, before, sound=not changed)
        return problems

    def _look(self, name: str, look: Look, attack: Attack) -> list[str]:
        _say({"look": name})
        try:
            look(attack.table)
        except MemwalError:
            return []
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            frames = traceback.format_exception(error)[-_KEPT_FRAMES:]
            return [f"{name}: {type(error).__name__}: {str(error)[:300]}\n{''.join(frames)[-3000:]}"]
        return []

    def _left_behind(self) -> list[str]:
        left = sorted(str(path) for path in self._scratch.iterdir())
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return [f"left behind: {each}" for each in left]

    def _restore(self, attack: Attack, before: bytes | None, *, sound: bool) -> None:
        """Put the file back; all tables if anything else was changed."""
        if before is None:
            attack.path.unlink()
        else:
            _write(attack.path, before)
            self._sound |= footprint_of(attack.path)
        if not sound:
            shutil.rmtree(self._place)
            shutil.copytree(self._kept, self._place, symlinks=True)
            self._sound = footprint(self._place)


def _write(path: Path, data: bytes) -> None:
    """Replace a file; a link to it elsewhere keeps the old bytes."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Take cases from standard input, one JSON document a line, until it ends."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.disable(logging.CRITICAL)
    directory, *without = sys.argv[1:]
    worker = Worker(Path(directory))
    worker.run(Case(0, "version hint"))  # What the first case of a process needs, threads included, is not its fault.
    for each in without:
        WITHOUT[each]()
    _limit_memory()
    _say({"ready": os.getpid()})
    for line in sys.stdin:
        asked = json.loads(line)
        Path("/proc/self/clear_refs").write_text("5")  # From here on the peak of this case is measured.
        problems = worker.run(Case(asked["seed"], asked["kind"], asked["decoder_only"]))
        _say({"done": asked["seed"], "problems": problems})


if __name__ == "__main__":
    main()

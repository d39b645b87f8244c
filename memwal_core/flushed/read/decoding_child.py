"""``python -m``: decodes data files that standard input names, a JSON document a line; says how many rows each has.

Lance may end this process; whoever started it then knows the file.
"""

from __future__ import annotations

import json
import resource
import selectors
import sys
from contextlib import suppress
from pathlib import Path

from memwal_core.base_table import decoding, open_file
from memwal_core.errors import CorruptionError, MemwalError

_IDLE_S = 30
_ROOM_BYTES = 4 << 30
"""Address space beyond what it has at its start: forged pages may unfold to whatever they say."""


def main() -> None:
    """Answer until standard input ends, or nothing is asked for a while."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory()
    with suppress(OSError):
        # If the pages of a file take all memory, it is this process that the system ends.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    questions = sys.stdin.buffer
    with selectors.DefaultSelector() as selector:
        selector.register(questions, selectors.EVENT_READ)
        while selector.select(_IDLE_S) and (line := questions.readline()):
            asked = json.loads(line)
            sys.stdout.write(json.dumps(_answer(asked["uri"], asked["storage_options"])) + "\n")
            sys.stdout.flush()


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _ROOM_BYTES
    inherited, most = resource.getrlimit(resource.RLIMIT_AS)
    if inherited == resource.RLIM_INFINITY or inherited > limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _answer(uri: str, storage_options: dict[str, str]) -> dict[str, object]:
    try:
        with decoding(uri):
            reader = open_file(uri, storage_options)
            return {"rows": sum(batch.num_rows for batch in reader.read_all().to_batches())}
    except MemwalError as error:
        reason = str(error.facts.get("reason", error.what))
        return {"unavailable": not isinstance(error, CorruptionError), "reason": reason}


if __name__ == "__main__":
    main()

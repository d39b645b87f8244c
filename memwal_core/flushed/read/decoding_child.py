"""``python -m``: decodes what standard input names, a JSON document a line: files, fragments, indexes; counts rows.

Lance may end this process; whoever started it then knows the file.
"""

from __future__ import annotations

import json
import resource
import selectors
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import lance

from memwal_core.base_table import decoding, open_file
from memwal_core.errors import CorruptionError, MemwalError, StoreRefusedError
from memwal_core.native.decoding import Undecoded

_IDLE_S = 30
_READ_ROWS = 1 << 12
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
            sys.stdout.write(json.dumps(_answer(asked)) + "\n")
            sys.stdout.flush()


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _ROOM_BYTES
    inherited, most = resource.getrlimit(resource.RLIMIT_AS)
    if inherited == resource.RLIM_INFINITY or inherited > limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _answer(asked: Mapping[str, Any]) -> dict[str, object]:
    uri, options = asked["uri"], asked["storage_options"]
    try:
        if not {"fragment", "index"} & asked.keys():
            return _read_file(uri, options)
        with decoding(uri):
            if "fragment" in asked:
                return _read_fragment(uri, options, asked["version"], asked["fragment"])
            return _load_index(_opened(uri, options, asked["version"]), asked["index"], asked["everything"])
    except MemwalError as error:
        reason = str(error.facts.get("reason", error.what))
        faults = {CorruptionError: Undecoded.DAMAGED, StoreRefusedError: Undecoded.REFUSED}
        fault = next((each for kind, each in faults.items() if isinstance(error, kind)), Undecoded.SILENT)
        return {"fault": fault, "reason": reason}


def _read_file(uri: str, options: Mapping[str, str]) -> dict[str, object]:
    reader = open_file(uri, options)
    with decoding(uri):
        return {"rows": sum(batch.num_rows for batch in reader.read_all().to_batches())}


def _read_fragment(uri: str, options: Mapping[str, str], version: int, fragment_id: int) -> dict[str, object]:
    fragment = _opened(uri, options, version).get_fragment(fragment_id)
    if fragment is None:
        raise ValueError(f"version {version} has no fragment {fragment_id}")
    # Reading ahead would take the memory that forged pages must not.
    batches = fragment.to_batches(batch_size=_READ_ROWS, batch_readahead=1)
    return {"rows": sum(batch.num_rows for batch in batches), "expected": fragment.count_rows()}


def _load_index(dataset: lance.LanceDataset, name: str, everything: int) -> dict[str, object]:
    """Open an index, or load all of it, as queries do; say how many vectors each partition has."""
    segments = dataset.stats.index_stats(name)["indices"]
    if everything:
        dataset.prewarm_index(name)
    # Segments share their centroids, so partition n of one belongs with partition n of the next.
    columns = [[int(each["size"]) for each in segment.get("partitions", ())] for segment in segments]
    return {"rows": 0, "partitions": [sum(sizes) for sizes in zip_longest(*columns, fillvalue=0)]}


def _opened(uri: str, options: Mapping[str, str], version: int) -> lance.LanceDataset:
    return lance.dataset(uri, version=version, storage_options=dict(options) or None)


if __name__ == "__main__":
    main()

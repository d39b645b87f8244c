"""``python -m``: reads a Lance file from standard input with Lance, and writes its rows as an Arrow stream.

In a process of its own, because Lance ends the process where the pages of a file are not as it expects, and takes as
much memory as they say.
"""

from __future__ import annotations

import resource
import sys
import tempfile

import pyarrow as pa
from lance.file import LanceFileReader

_ROOM_BYTES = 6 << 30
"""Address space; what Lance's threads reserve of it is not used."""


def main() -> None:
    """Read, and write; whatever goes wrong ends the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM_BYTES, _ROOM_BYTES))
    with tempfile.NamedTemporaryFile(suffix=".lance") as file:
        file.write(sys.stdin.buffer.read())
        file.flush()
        table = LanceFileReader(file.name).read_all().to_table()
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    main()

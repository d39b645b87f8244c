"""The `memwal` command: parse, call, show.

Holds no state and decides nothing. May import everything but the tests' fakes.
"""

from __future__ import annotations

import importlib
import os

LANCE_LOG_DEFAULT = "error,lance::index=off"
"""Lance reports an error for each look at the MemWAL index, because that index has no fields."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    os.environ.setdefault("LANCE_LOG", LANCE_LOG_DEFAULT)
    # Lance reads its log filter when it is loaded, so everything else is loaded only now.
    importlib.import_module("memwal_core.cli.app").run()

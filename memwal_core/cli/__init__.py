"""The `memwal` command: parse, call, show.

Holds no state and decides nothing. May import everything but the tests' fakes.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys

from memwal_core.cli.ending import asks_for_json, guard_stdout, heed_termination, print_error
from memwal_core.errors import MemwalError
from memwal_core.extras import extras_named
from memwal_core.native.arenas import limit_arenas

LANCE_LOG_DEFAULT = "error,lance::index=off"
"""Lance reports an error for each look at the MemWAL index, because that index has no fields."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    limit_arenas()
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        # Imports leave nothing to clean up, and their traceback would tell nobody anything.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("LANCE_LOG", LANCE_LOG_DEFAULT)
    guard_stdout()
    # What imports leave is never garbage: each pass over it would cost a command more than it frees.
    gc.disable()
    _import_arrow_without_pandas()
    # Lance reads its log filter when it is loaded, so everything else is loaded only now.
    try:
        with extras_named():
            app = importlib.import_module("memwal_core.cli.app")
    except MemwalError as error:
        # Rich may be what is missing.
        sys.stderr.write(f"memwal: {error}\n")
        if asks_for_json(sys.argv[1:]):
            print_error(error, error.exit_code)
        sys.exit(error.exit_code)
    gc.freeze()
    gc.enable()
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    heed_termination()
    app.run()


class _NoPandas:
    """Refuses to find pandas."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is imported by whoever needs it", name=fullname)


def _import_arrow_without_pandas() -> None:
    """Import what makes Arrow import pandas if there is one: a third of what a command's start would cost.

    Arrow looks for pandas again when it converts to it, so commands that need it are none the worse.
    """
    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        importlib.import_module("pyarrow.dataset")
    finally:
        sys.meta_path.remove(refusal)

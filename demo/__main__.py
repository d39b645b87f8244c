"""``python -m demo``: the demonstration; ``python -m demo up`` and ``down``: Airflow's servers on this machine."""

from __future__ import annotations

import importlib
import os

from memwal_core.cli import LANCE_LOG_DEFAULT

if __name__ == "__main__":
    os.environ.setdefault("LANCE_LOG", LANCE_LOG_DEFAULT)
    # Lance reads its log filter when it is loaded, so everything else is loaded only now.
    importlib.import_module("demo.commands").run()

"""``python -m``: ends like a process that the system takes the memory of, at whatever it is asked."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)

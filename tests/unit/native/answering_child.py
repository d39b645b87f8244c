"""``python -m``: does what standard input says, one JSON document a line."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Answer until the input ends, or as asked."""
    if os.environ.get("DEAF"):
        time.sleep(600)
    for line in sys.stdin:
        asked = json.loads(line)
        if "signal" in asked:
            os.kill(os.getpid(), asked["signal"])
        if "code" in asked:
            sys.exit(asked["code"])
        if asked.get("half"):
            print('{"pid":', end="", flush=True)
            time.sleep(600)
        time.sleep(600 if asked.get("name") == "silent" else asked.get("sleep_s", 0))
        print(
            json.dumps({"pid": os.getpid(), "environment": sorted(os.environ), "echo": asked.get("echo")}), flush=True
        )
        if asked.get("last"):
            sys.exit(0)


if __name__ == "__main__":
    main()

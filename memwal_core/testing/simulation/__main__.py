"""``python -m memwal_core.testing.simulation``: see ``many``."""

import typer

from memwal_core.testing.simulation.many import main

if __name__ == "__main__":
    typer.run(main)

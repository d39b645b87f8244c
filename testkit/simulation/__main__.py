"""``python -m testkit.simulation``: see ``many``."""

import typer

from testkit.simulation.many import main

if __name__ == "__main__":
    typer.run(main)

"""Does a test fail when a safety rule is switched off? Mutants of the safety modules, and which of them survive.

``tools/mutants.toml`` lists, by hand, one mutant for each rule, and the modules of which ``--random`` makes others.
Each mutant is tried in a copy of the tree, with the tests that are meant to bite; one that passes all of them survives.

    python -m tools.mutate                       # every mutant of the list
    python -m tools.mutate gc-last-look          # some of them
    python -m tools.mutate --random 20           # a fresh sample of random ones; prints --seed to see it again
    python -m tools.mutate --random 20 --seed 7 --from 12   # what an interrupted run left, of the same tree
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("mutants.toml")
_COPIED = ("memwal_core", "testkit", "tests", "jobs", "dags", "plugins", "proto", "docs", "pyproject.toml")
_LONGEST_S = 900
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Attributes:
        name: For the report.
        rule: What is switched off, or where a random change is.
        path: The module, relative to the tree.
        old: Text that occurs once in it.
        new: What stands there instead.
        tests: Arguments of pytest.
    """

    name: str
    rule: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Return the source of the module with the change.

        Raises:
            ValueError: The text does not occur exactly once, or the result is not Python.
        """
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: the text occurs {source.count(self.old)} times in {self.path}")
        changed = source.replace(self.old, self.new)
        ast.parse(changed)
        return changed


@dataclass(frozen=True)
class SafetyModule:
    """A module of which random mutants are made, and the tests that are meant to bite."""

    path: str
    tests: tuple[str, ...]


def listed() -> tuple[list[Mutant], list[SafetyModule]]:
    """Return the mutants made by hand, and the modules for random ones."""
    document = tomllib.loads(LIST.read_text(encoding="utf-8"))
    mutants = [Mutant(**{**each, "tests": tuple(each["tests"])}) for each in document["mutant"]]
    modules = [SafetyModule(each["path"], tuple(each["tests"])) for each in document["module"]]
    return mutants, modules


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,  # codespell:ignore
    ast.NotIn: ast.In,  # codespell:ignore
}


def _variant(node: ast.AST) -> ast.expr | None:
    """Return a changed copy of an expression; None for one that is not changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
        changed = copy.deepcopy(node)
        changed.ops[0] = _OPPOSITE[type(node.ops[0])]()
        return changed
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return None


def _declarations(tree: ast.Module) -> Iterator[ast.AST]:
    """Return what stands in decorators: ``frozen=True`` keeps programmers from mistakes, and changes no run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                yield from ast.walk(decorator)


def random_mutants(module: SafetyModule, source: str) -> Iterator[Mutant]:
    """Return every random mutant of a module whose changed place is one line that occurs once."""
    lines = source.splitlines()
    tree = ast.parse(source)
    idle = set(_declarations(tree))
    for node in ast.walk(tree):
        variant = _variant(node)
        if not isinstance(node, ast.expr) or variant is None or node.lineno != node.end_lineno or node in idle:
            continue
        line = lines[node.lineno - 1]
        if lines.count(line) != 1:
            continue
        encoded = line.encode()
        text = f"({ast.unparse(variant)})".encode()
        changed = (encoded[: node.col_offset] + text + encoded[node.end_col_offset :]).decode()
        where = f"{module.path}:{node.lineno}"
        yield Mutant(
            where, f"{line.strip()}  ->  {changed.strip()}", module.path, f"\n{line}\n", f"\n{changed}\n", module.tests
        )


def sample(modules: Sequence[SafetyModule], count: int, seed: int) -> list[Mutant]:
    """Return some random mutants, the same for the same seed and tree."""
    found: list[Mutant] = []
    for module in modules:
        source = (ROOT / module.path).read_text(encoding="utf-8")
        found += [each for each in random_mutants(module, source) if source.count(each.old) == 1]
    return random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - a choice that is printed


class Trial:
    """A copy of the tree in which mutants are tried, one at a time.

    Args:
        directory: Where; empty.
    """

    def __init__(self, directory: Path) -> None:
        """Copy what the tests need."""
        self._tree = directory
        self._sound: set[tuple[str, ...]] = set()
        for name in _COPIED:
            source, target = ROOT / name, directory / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)

    def survives(self, mutant: Mutant) -> bool:
        """Return whether no test fails with a mutant.

        Raises:
            RuntimeError: The tests do not pass without the mutant, or there are none.
        """
        if mutant.tests not in self._sound:
            if not self._passes(mutant.tests):
                raise RuntimeError(f"{mutant.name}: its tests fail without it")
            self._sound.add(mutant.tests)
        module = self._tree / mutant.path
        source = module.read_text(encoding="utf-8")
        module.write_text(mutant.applied(source), encoding="utf-8")
        try:
            return self._passes(mutant.tests)
        finally:
            module.write_text(source, encoding="utf-8")

    def _passes(self, tests: Sequence[str]) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not long", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._tree), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                command,
                cwd=self._tree,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return False
        if ran.returncode not in {_PASSED, _FAILED}:
            raise RuntimeError(f"no test ran for {' '.join(tests)}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
        return ran.returncode == _PASSED


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants of the list; all of them by default")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="try N random ones instead")
    parser.add_argument("--seed", type=int, default=None, help="which random ones; fresh by default")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="leave out the first N")
    chosen = parser.parse_args(arguments)
    mutants, modules = listed()
    if chosen.random:
        seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**6)
        print(f"again: python -m tools.mutate --random {chosen.random} --seed {seed}")
        mutants = sample(modules, chosen.random, seed)
    elif chosen.names:
        mutants = [each for each in mutants if each.name in chosen.names]
    mutants = mutants[chosen.first :]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="memwal-mutants-") as directory:
        trial = Trial(Path(directory))
        for mutant in mutants:
            lives = trial.survives(mutant)
            print(f"{'SURVIVES' if lives else 'killed':9} {mutant.name}: {mutant.rule}", flush=True)
            survivors += [mutant] if lives else []
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())

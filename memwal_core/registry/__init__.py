"""The registry: one TOML file in which the operator says what this installation maintains, and what a run may name."""

from memwal_core.registry.admit import admit
from memwal_core.registry.load import REGISTRY_VARIABLE, load_registry, parse_registry, read_registry, require_registry
from memwal_core.registry.model import BrokenEntry, RegisteredSource, RegisteredTable, Registry, tables_left

__all__ = [
    "REGISTRY_VARIABLE",
    "BrokenEntry",
    "RegisteredSource",
    "RegisteredTable",
    "Registry",
    "admit",
    "load_registry",
    "parse_registry",
    "read_registry",
    "require_registry",
    "tables_left",
]

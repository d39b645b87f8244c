"""Real texts and embeddings of them: the documentation that ships inside numpy and pyarrow, and its latent topics."""

from __future__ import annotations

import inspect
from functools import cache
from types import ModuleType

import lance
import numpy as np
import numpy.typing as npt
import pyarrow.compute

DIMENSION = 32
_MIN_LETTERS = 80
_MAX_WORDS = 2000
_MODULES = (np, np.linalg, np.fft, np.random, np.ma, np.strings, np.polynomial, pyarrow, pyarrow.compute)


@cache
def documentation() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of documented functions and classes, by name, each text once."""
    found: dict[str, str] = {}
    for module in _MODULES:
        for name in sorted(module.__all__ if hasattr(module, "__all__") else vars(module)):
            thing = getattr(module, name, None)
            text = None if isinstance(thing, ModuleType) or name.startswith("_") else inspect.getdoc(thing)
            if text and len(text) >= _MIN_LETTERS and text not in found.values():
                found[f"{module.__name__}.{name}"] = text
    return tuple(sorted(found.items()))


def tokens(text: str) -> list[str]:
    """Return the tokens of a text as an index with Lance's default tokenizer and no stemming counts them."""
    return [token.text for token in lance.tokenize(text, stem=False)]


def topics(texts: list[str]) -> npt.NDArray[np.float32]:
    """Return latent semantic embeddings: the largest components of the weighted word counts, of unit length.

    Shape (texts, ``DIMENSION``).
    """
    counted = [np.unique(tokens(text), return_counts=True) for text in texts]
    words, documents = np.unique(np.concatenate([found for found, _ in counted]), return_counts=True)
    order = np.argsort(-documents, kind="stable")[:_MAX_WORDS]
    columns = {word: number for number, word in enumerate(words[order])}
    weights = np.log(len(texts) / documents[order]) + 1
    matrix = np.zeros((len(texts), len(order)))
    for row, (found, counts) in enumerate(counted):
        for word, count in zip(found, counts, strict=True):
            if word in columns:
                matrix[row, columns[word]] = count * weights[columns[word]]
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    embedded = vectors[:, -DIMENSION:] * np.sqrt(values[-DIMENSION:])
    return (embedded / np.linalg.norm(embedded, axis=1, keepdims=True)).astype(np.float32)

"""Real texts and embeddings of them: news articles, and vectors of their words, as they ship inside gensim."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt

DIMENSION = 10
_ARTICLES = ("lee_background.cor", "lee.cor")
_WORD_VECTORS = "lee_fasttext.vec"
_MIN_WORDS = 5


def _shipped(name: str) -> Path:
    # Read as a file: nothing of gensim needs to be imported.
    return Path(str(distribution("gensim").locate_file(f"gensim/test/test_data/{name}")))


@cache
def sentences() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of the sentences of all articles, in their order, each text once."""
    found: dict[str, str] = {}
    for corpus in _ARTICLES:
        for number, article in enumerate(_shipped(corpus).read_text(encoding="latin-1").splitlines()):
            for place, sentence in enumerate(article.strip().split(". ")):
                if len(sentence.split()) >= _MIN_WORDS:
                    found.setdefault(sentence, f"{corpus}:{number}.{place}")
    return tuple((name, text) for text, name in found.items())


def tokens(text: str) -> list[str]:
    """Return the tokens of a text as an index with Lance's default tokenizer and no stemming counts them."""
    return [token.text for token in lance.tokenize(text, stem=False)]


@cache
def _word_vectors() -> dict[str, npt.NDArray[np.float32]]:
    lines = _shipped(_WORD_VECTORS).read_text(encoding="utf-8").splitlines()[1:]
    parts = (line.split() for line in lines)
    return {word: np.array(values, dtype=np.float32) for word, *values in parts}


def embedded(texts: list[str]) -> npt.NDArray[np.float32]:
    """Return the embedding of each text, the mean of the fastText vectors of its words.

    Shape (texts, ``DIMENSION``).
    """
    known = _word_vectors()
    words = ([known[word] for word in text.lower().split() if word in known] for text in texts)
    return np.stack([np.mean(each or [np.zeros(DIMENSION)], axis=0) for each in words]).astype(np.float32)

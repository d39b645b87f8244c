"""Runbooks as parts of a page, with the table and the region of the moment in their commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from shlex import quote
from urllib.parse import urlencode

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "shipped" / "docs" / "runbooks", _PACKAGE.parent / "docs" / "runbooks")
_OTHER = re.compile(r"([a-z0-9-]+)\.md(?:#.*)?", re.ASCII)
_DEEPER = 1
"""Levels by which headings go down, below that of the page."""


@cache
def runbooks() -> Mapping[str, Path]:
    """Return the pages by name: inside the package where it was installed, beside it in a working copy."""
    folder = next((each for each in _FOLDERS if each.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.md"))} if folder is not None else {}


def render_runbook(name: str, table: str, uri: str, region: str = "") -> Markup | None:
    """Return a runbook as HTML; None if there is none of that name.

    Args:
        name: Of the page, without suffix.
        table: Name of the table, for links to other runbooks.
        uri: What ``$TABLE`` stands for in commands.
        region: What ``$REGION`` stands for; empty leaves it.
    """
    path = runbooks().get(name)
    if path is None:
        return None
    # Raw HTML stays text; headings and links are changed below.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    stand_for = {"$TABLE": quote(uri), **({"$REGION": quote(region)} if region else {})}
    for token in tokens:
        _adapt(token, table, stand_for)
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - rendered from escaped text


def _adapt(token: Token, table: str, stand_for: Mapping[str, str]) -> None:
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(6, int(token.tag[1]) + _DEEPER)}"
    if token.type in ("fence", "code_block", "code_inline"):
        for name, value in stand_for.items():
            token.content = token.content.replace(name, value)
    if token.type == "fence":
        token.info = ""
    if token.type == "link_open":
        _relink(token, table)
    for child in token.children or ():
        _adapt(child, table, stand_for)


def _relink(token: Token, table: str) -> None:
    """Let links lead to other runbooks, and nowhere else: the page has no other pages of the documentation."""
    found = _OTHER.fullmatch(str(token.attrs.get("href", "")))
    if found is not None and found[1] in runbooks():
        token.attrs = {"href": f"runbook?{urlencode({'name': found[1], 'table': table})}"}
    else:
        token.attrs = {}

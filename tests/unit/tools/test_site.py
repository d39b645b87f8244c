"""The site shows every page and leads links to what it has; whether headings exist, `make docs` proves."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from tools import site

ROOT = Path(__file__).resolve().parents[3]


def page(uri: str) -> Any:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri))


def files_of(*pages: tuple[str, str]) -> set[str]:
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=[], hooks=[])
    config.plugins._current_plugin = None  # MkDocs sets it while hooks run.
    found = site.on_files(Files([File.generated(config, uri, content=text) for uri, text in pages]), config=config)
    return {each.src_uri for each in found}


def test_site_has_every_page() -> None:
    named = set(re.findall(r"^ +- (?:[^\n]*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}

    assert {name for name in pages if not name.startswith((*site.INDEXES,))} - named == set()


def test_site_has_what_pages_link_to() -> None:
    found = files_of(("watching.md", "[alerts](../deploy/alerts.yaml), [log](../CHANGELOG.md#010)"))

    assert {"files/deploy/alerts.yaml", "changelog.md", "reference/python.md", "decisions/index.md"} <= found
    assert "files/CHANGELOG.md" not in found


@pytest.mark.parametrize("missing", ["../deploy/nothing.yaml", "../deploy"])
def test_link_to_what_is_no_file_of_the_repository_stops_the_build(missing: str) -> None:
    with pytest.raises(PluginError, match="not a file"):
        files_of(("watching.md", f"[alerts]({missing})"))


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("watching.md", "../deploy/alerts.yaml", "files/deploy/alerts.yaml"),
        ("runbooks/garbage.md", "../../deploy/alerts.yaml", "../files/deploy/alerts.yaml"),
        ("runbooks/garbage.md", "../freeze.md#way-out", "../freeze.md#way-out"),
        ("operating.md", "runbooks", "runbooks/index.md"),
        ("contributing.md", "docs/glossary.md", "glossary.md"),
        ("contributing.md", "CHANGELOG.md", "changelog.md"),
        ("operating.md", "https://lance.org", "https://lance.org"),
        ("operating.md", "#the-page", "#the-page"),
    ],
)
def test_links_lead_to_pages_of_the_site(uri: str, link: str, expected: str) -> None:
    fenced = f"```\n[not a link]({link})\n```\n"

    assert site.on_page_markdown(f"[x]({link}).\n{fenced}", page(uri)) == f"[x]({expected}).\n{fenced}"


@pytest.mark.parametrize(
    ("html", "is_refused"),
    [
        ('<script src="https://unpkg.com/mermaid.js"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', True),
        ('<img alt="x" src=http://example.org/x.png>', True),
        ('<a href="https://lance.org">Lance</a><script src="assets/x.js"></script>', False),
    ],
)
def test_page_that_would_fetch_from_elsewhere_stops_the_build(html: str, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(PluginError, match="elsewhere"):
            site.on_post_page(html, page("x.md"))
    else:
        assert site.on_post_page(html, page("x.md")) == html

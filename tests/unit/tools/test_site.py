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
from typer.testing import CliRunner

from memwal_core.cli.app import app
from testkit.commands import commands
from tools import site

ROOT = Path(__file__).resolve().parents[3]


def page(uri: str) -> Any:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri))


def files_of(*pages: tuple[str, str]) -> dict[str, File]:
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=[], hooks=[])
    config.plugins._current_plugin = None  # MkDocs sets it while hooks run.
    found = site.on_files(Files([File.generated(config, uri, content=text) for uri, text in pages]), config=config)
    return {each.src_uri: each for each in found}


def test_site_has_every_page() -> None:
    named = set(re.findall(r"^ +- (?:[^\n]*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}

    assert {name for name in pages if not name.startswith((*site.INDEXES,))} - named == set()


def test_site_has_what_pages_link_to() -> None:
    found = files_of(("watching.md", "[alerts](../deploy/alerts.yaml), [log](../CHANGELOG.md#010)"))

    assert {"files/deploy/alerts.yaml", "changelog.md", "reference/python.md", "decisions/index.md"} <= found.keys()
    assert "files/CHANGELOG.md" not in found


def test_page_of_commands_shows_every_name_of_their_help_and_takes_none_away() -> None:
    """Click makes the option once for each command; made outside of its group, it lacked `-h` from then on."""
    shown = files_of()["reference/commands.md"].content_string

    assert shown.count("| `-h, --help` |") == len(commands())
    assert CliRunner().invoke(app, "index maintain -h").exit_code == 0


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


@pytest.mark.parametrize("path", sorted((ROOT / "docs/concepts").glob("*.md")), ids=lambda path: path.stem)
def test_concept_has_one_picture_which_fits_a_phone_and_looks_like_the_others(path: Path) -> None:
    [(alternative, name)] = re.findall(r"!\[(.+)\]\(\.\./(pictures/\w+\.svg)\)", path.read_text())
    drawn, first = ((ROOT / "docs" / each).read_text() for each in (name, "pictures/overview.svg"))
    places = re.findall(r'<text [^>]*\bx="([\d.]+)"', drawn)

    assert alternative
    assert re.match(r'<svg [^>]*viewBox="0 0 360 \d+"[^>]*aria-label="[^"]+"', drawn)
    assert len(places) == drawn.count("<text ") > 0
    assert all(0 <= float(place) <= 360 for place in places)
    assert re.findall(r"<style>.*</defs>", drawn, re.S) == re.findall(r"<style>.*</defs>", first, re.S) != []


def test_drawing_is_put_into_the_page_where_the_page_colours_it_and_charts_are_not() -> None:
    drawing, chart = '<img alt="x" src="../pictures/merge.svg" />', '<img alt="y" src="benchmarks/loop.svg" />'

    html = site.on_page_content(f"<p>{drawing}</p><p>{chart}</p>")

    assert html == f"<p>{(ROOT / 'docs/pictures/merge.svg').read_text()}</p><p>{chart}</p>"

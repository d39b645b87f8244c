"""What MkDocs adds beyond mkdocs.yml: pages made from code, indexes, files of the repository that pages link to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from memwal_core.cli.app import app
from testkit.commands import commands

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(?=[)#])")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
# What a page makes a browser fetch from elsewhere.
FOREIGN = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
PICTURE = re.compile(r'<img\b[^>]*?\bsrc="[^"]*?(pictures/\w+\.svg)"[^>]*>')
PAGES_ELSEWHERE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
INDEXES = {
    "runbooks": (
        "Runbooks",
        "What to do when a signal warns. The page of Airflow and `memwal doctor` name the one to read. Set `TABLE` to "
        "the address of the table and `REGION` to the id of the region in a shell, and commands can be copied.",
    ),
    "decisions": ("Decisions", "What was chosen, what was rejected, and which tests would notice a mistake."),
}
API = {
    "Tables": ("memwal_core.table.Table",),
    "Writers": ("memwal_core.writer.table_writer.TableWriter",),
    "LanceDB's tables": ("memwal_core.lancedb.maintained",),
    "Errors": ("memwal_core.errors",),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every runbook and decision into the navigation, after their index."""
    for section in config.nav or []:
        for pages in section.values():
            for folder in INDEXES:
                if pages[0] == f"{folder}/index.md":
                    pages += [f"{folder}/{each.name}" for each in _pages_of(folder)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not a page below ``docs``: generated pages, and the files that pages link to."""
    made = {
        "reference/commands.md": "\n".join(_commands()),
        "reference/python.md": "\n".join(_api()),
        **{f"{folder}/index.md": _index(folder) for folder in INDEXES},
        **{page: (ROOT / name).read_text(encoding="utf-8") for name, page in PAGES_ELSEWHERE.items()},
    }
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    linked = {
        target
        for page in files.documentation_pages()
        for link in LINK.findall(page.content_string)
        if (target := _outside(page.src_uri, link)) is not None
    }
    for target in sorted(linked - PAGES_ELSEWHERE.keys()):
        if not (ROOT / target).is_file():
            raise PluginError(f"{target} is linked, but is not a file that the site could show")
        files.append(File.generated(config, f"files/{target}", content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links out of ``docs``, and to folders, to what the site has."""
    here = page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        target = _outside(here, found[1])
        if target is not None:
            name = PAGES_ELSEWHERE.get(target, f"files/{target}")
        elif (ROOT / "docs" / _below(here, found[1])).is_dir():
            name = f"{_below(here, found[1])}/index.md"
        else:
            name = _below(here, found[1])
        return posixpath.relpath(name, posixpath.dirname(here) or ".")

    parts = FENCED.split(markdown)
    return "".join(part if number % 2 else LINK.sub(moved, part) for number, part in enumerate(parts))


def on_page_content(html: str, **_: object) -> str:
    """Put drawings into the page itself, where they follow its colours."""
    return PICTURE.sub(lambda found: (ROOT / "docs" / found[1]).read_text(encoding="utf-8"), html)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Refuse a page that would make a browser ask other servers."""
    if found := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch from elsewhere: {found[0]}")
    return output


def _place(uri: str) -> str:
    """Return the folder of the repository in which the source of a page lies."""
    return "" if uri in PAGES_ELSEWHERE.values() else posixpath.join("docs", posixpath.dirname(uri))


def _below(uri: str, link: str) -> str:
    return posixpath.relpath(posixpath.join(_place(uri), link), "docs")


def _outside(uri: str, link: str) -> str | None:
    """Return the path in the repository of a link's target that is not below ``docs``, else None."""
    path = posixpath.normpath(posixpath.join(_place(uri), link))
    return None if path == "docs" or path.startswith("docs/") else path


def _pages_of(folder: str) -> list[Path]:
    return sorted((ROOT / "docs" / folder).glob("*.md"))


def _index(folder: str) -> str:
    title, purpose = INDEXES[folder]
    lines = [
        f"- [{page.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]({page.name})"
        for page in _pages_of(folder)
    ]
    return "\n".join([f"# {title}", "", purpose, "", *lines])


def _api() -> Iterator[str]:
    yield "# Python\n\nRequests of jobs, their fields and defaults: [jobs](../jobs.md).\n"
    for title, names in API.items():
        yield f"## {title}\n"
        yield from (f"::: {name}\n" for name in names)


def _commands() -> Iterator[str]:
    yield "# Commands\n\nWhat `memwal COMMAND --help` says. Exit codes: [errors](../errors.md).\n"
    root = typer.main.get_command(app).make_context("memwal", [], resilient_parsing=True)
    for path, command in commands().items():
        # Below the root: a command keeps the first names of its help option, which the root has given more of.
        context = command.make_context(" ".join(path), [], parent=root, resilient_parsing=True)
        yield f"## memwal {' '.join(path)}\n\n{(command.help or '').strip()}\n"
        yield f"```\n{command.get_usage(context).removeprefix('Usage: ').strip()}\n```\n"
        yield "| option | meaning |\n|---|---|"
        records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
        yield from (f"| {_cell(f'`{names}`')} | {_cell(text)} |" for names, text in records)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

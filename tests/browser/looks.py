"""How a page looks, as numbers: screenshots that show something, text that can be read, nothing cut off."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Frame, Page

ROOT = Path(__file__).resolve().parents[2]
SHOTS = "MAINTENANCE_SCREENSHOTS"
"""Folder outside the repository in which a CI keeps the screenshots."""

AXE = "MAINTENANCE_AXE"
"""File ``axe.min.js`` of the npm package ``axe-core``, which is not a dependency; without it nothing is asked of it."""

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = 120_000
"""How long the page of a busy machine may take; Playwright's own limits are 5 and 30 seconds."""

LOOKS: Mapping[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 420, "height": 900}},
}
PLACES = {
    "overview": "",
    "table": "table?name=orders",
    "region": "region?table=orders&region={region}",
    "form": "run?dag=memwal_gc&table=orders",
}

# Contrast after WCAG 2.2: of every visible text with what is behind it, and of every coloured shape of a picture.
CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg, script")) continue;
    const contrast = ratio(parse(getComputedStyle(element).color), behind(element));
    found.push({ kind: "text", what: walker.currentNode.data.trim().slice(0, 40), contrast });
  }
  for (const shape of document.querySelectorAll("svg rect")) {
    const contrast = ratio(parse(getComputedStyle(shape).fill), behind(shape.parentElement));
    found.push({ kind: "shape", what: shape.getAttribute("class"), contrast });
  }
  return found;
}"""
ENOUGH = {"text": 4.5, "shape": 3.0}

CUT_OFF = """() => [...document.querySelectorAll("body *")].filter((element) => {
  if (!element.checkVisibility() || element.closest(".scroll, .sr, .skip, svg")) return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1;
}).map((element) => element.outerHTML.slice(0, 80))"""


OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".alert, .card, aside.runbook, .scroll, .chart, .facts")]
    .filter((each) => each.checkVisibility()).map((each) => [each, each.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], number) => boxes.slice(number + 1).filter(([other, b]) => !one.contains(other)
    && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => `${one.className} over ${other.className}`));
}"""


def shots_folder() -> Path:
    """Return the folder of the screenshots, made."""
    default = Path(tempfile.gettempdir()) / "memwal-screenshots"
    folder = Path(os.environ.get(SHOTS) or default).resolve()
    assert not folder.is_relative_to(ROOT), f"{SHOTS} must be outside the repository, not {folder}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shoot(page: Page, name: str, *, whole: bool = True) -> Path:
    """Keep a screenshot and check that it is a picture of something."""
    path = shots_folder() / f"{name}.png"
    path.unlink(missing_ok=True)
    page.screenshot(path=str(path), full_page=whole)
    width, _, values = read_png(path)
    assert page.viewport_size is not None
    assert width == page.viewport_size["width"]
    assert values > 20, f"{path} shows next to nothing"
    return path


def read_png(path: Path) -> tuple[int, int, int]:
    """Return width and height in pixels, and how many different byte values the picture has.

    Raises:
        ValueError: It is no whole PNG.
    """
    data = path.read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[-8:-4] != b"IEND":
        raise ValueError(f"{path} is no PNG")
    width, height = struct.unpack(">II", data[16:24])
    pixels, position = b"", 8
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            pixels += data[position + 8 : position + 8 + length]
        position += 12 + length
    return width, height, len(set(zlib.decompress(pixels)))


def list_shots(folder: Path) -> list[str]:
    """Return a line for each screenshot of a run.

    Raises:
        ValueError: One that every run takes is missing, or one is no picture.
    """
    missing = [
        f"{place}-{look}" for place in PLACES for look in LOOKS if not (folder / f"{place}-{look}.png").is_file()
    ]
    if missing:
        raise ValueError(f"no screenshots in {folder} of {', '.join(missing)}")
    lines = []
    for path in sorted(folder.glob("*.png")):
        width, height, _ = read_png(path)
        lines.append(f"{path}: {width} x {height}, {path.stat().st_size:,} bytes")
    return lines


def hard_to_read(page: Page | Frame) -> list[dict[str, Any]]:
    """Return what has too little contrast."""
    found = page.evaluate(CONTRAST)
    assert any(each["kind"] == "text" for each in found)
    return [each for each in found if each["contrast"] < ENOUGH[each["kind"]]]


def barriers(page: Page) -> list[str]:
    """Return what axe finds, if the environment says where its script is; else nothing."""
    if not (path := os.environ.get(AXE)):
        return []
    # The policy of the page lets no script in; the debugger does not ask it.
    page.context.new_cdp_session(page).send("Runtime.evaluate", {"expression": Path(path).read_text()})
    found = page.evaluate("axe.run().then((found) => found.violations.map((each) => [each.id, each.nodes[0].html]))")
    return [f"{name}: {html[:200]}" for name, html in found]


def cut_off(page: Page | Frame) -> list[str]:
    """Return elements beyond the right edge, other than those in areas that scroll, and whether text is."""
    wider = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1")
    return [*page.evaluate(CUT_OFF), *(["the page scrolls sideways"] if wider else [])]


def overlaps(page: Page) -> list[str]:
    """Return the boxes with a frame that lie over each other."""
    return list(page.evaluate(OVERLAPS))


def tab_to(page: Page, name: str, limit: int = 60) -> int:
    """Press Tab until the control with a text has the focus; return how often."""
    for count in range(1, limit + 1):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText.trim().replace(/\\s+/g, ' ')") == name:
            return count
    raise AssertionError(f"{name!r} is not reached by the keyboard")


if __name__ == "__main__":
    print("\n".join(list_shots(Path(sys.argv[1]))))

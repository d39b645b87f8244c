"""A runbook as text: its sections, and the commands that people copy from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "runbooks"
LOOK, MEND, PROVE = "Look first", "Mend it", "How to know that it worked"
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.M | re.S)
_INLINE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Book:
    """One page of ``docs/runbooks``, by its name without the suffix."""

    name: str

    @property
    def page(self) -> str:
        """Its address, as signals, findings and errors give it."""
        return f"docs/runbooks/{self.name}.md"

    @cached_property
    def sections(self) -> dict[str, str]:
        """Heading of either level -> the text below it, up to the next heading."""
        parts = re.split(r"^#{2,3} (.+)\n", (RUNBOOKS / f"{self.name}.md").read_text(), flags=re.M)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def commands(self, section: str) -> list[str]:
        """Return the `memwal` commands of a section with arguments, blocks first, each once, in their order."""
        text = self.sections[section]
        lines = [line.strip() for _, language, block in _BLOCK.findall(text) if language == "bash"
                 for line in block.splitlines()]  # fmt: skip
        lines += [" ".join(code.split()) for code in _INLINE.findall(_BLOCK.sub("", text))]
        return list(dict.fromkeys(line for line in lines if re.match(r"memwal \w+ \$TABLE", line)))

    def programs(self, section: str) -> list[str]:
        """Return the Python blocks of a section."""
        return [block for _, language, block in _BLOCK.findall(self.sections[section]) if language == "python"]

    def has(self, code: str) -> bool:
        """Tell whether the page has a command or expression, word for word."""
        everything = " ".join(" ".join(self.sections.values()).split())
        return f"`{code}`" in everything or any(code in self.commands(section) for section in self.sections)

"""Every link of a document to another one, or to a heading, leads somewhere."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "deploy", "examples")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)


def prose(path: Path) -> Iterator[str]:
    """The lines of a document that are no code."""
    code = False
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield line


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a link to a document may name behind ``#``, as GitHub makes it of headings."""
    found: list[str] = []
    for line in prose(path):
        found += re.findall(r'<a id="([^"]+)"', line)
        if heading := re.fullmatch(r"#+ (.+)", line):
            shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
            plain = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            again = re.compile(rf"{re.escape(plain)}(-\d+)?")
            times = sum(again.fullmatch(each) is not None for each in found)
            found.append(f"{plain}-{times}" if times else plain)
    return frozenset(found)


def broken(path: Path) -> Iterator[str]:
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", "\n".join(prose(path)), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(broken(path)) == []

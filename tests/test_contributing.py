"""The documents name files, targets, links and decisions that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
FILES = sorted(
    {
        name
        for name in re.findall(r"[`(]([\w./-]+/[\w.-]*)[`)]", TEXT + ARCHITECTURE)
        if (ROOT / name.partition("/")[0]).is_dir()
    }
)
DECISIONS = ROOT / "docs" / "decisions"
FOLDERS = sorted(
    path.parent.relative_to(ROOT)
    for room in ("variants", "planner", "workers", "profiler", "controlplane")
    for path in (ROOT / room).rglob("__init__.py")
    if "migrations" not in path.parts
)
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)


@pytest.mark.parametrize("name", FILES)
def test_what_it_names_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_it_names_the_registries() -> None:
    assert {"planner/eviction/rules.py", "workers/runtimes/registry.py"} <= set(FILES)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make (\w+)", TEXT))))
def test_every_target_is_one_of_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def anchors(document: Path) -> Iterator[str]:
    """What a link to a part of a document may name: headings as GitHub writes them, and ids."""
    text = document.read_text()
    yield from re.findall(r'<a id="([\w-]+)">', text)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                lost.append(link)

    assert lost == []


def test_the_index_has_each_decision_and_what_falls_short_of_it() -> None:
    index = (DECISIONS / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d+)\]\((\d{4}-.*?\.md)\) \| (.*) \|$", index, re.MULTILINE)

    assert sorted(name for _, name, _ in rows) == [
        path.name for path in sorted(DECISIONS.glob("[0-9]*.md"))
    ]
    for number, name, cells in rows:
        question, decision, short = cells.split(" | ")
        assert int(number) == int(name[:4])
        assert (question[-1], decision[-1], short[-1]) == ("?", ".", "."), name


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_says_what_each_of_its_modules_is_for(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}
    parts = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert (modules | parts) - set(re.findall(r"\w+", said)) == set()

"""Commands that the documentation and the help show are there, with the options that they give."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.main import get_command

from controlplane.cli.commands.root import app

ROOT = Path(__file__).parents[2]
TEXTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "deploy").rglob("*.md"),
    *(ROOT / "examples").glob("*.md"),
]
"""For users. What the changelog and decision records say is of older states, too."""
ENDS = ("&&", "||", "|", ">", "2>", "&", ";", "<")
MODELLESS = get_command(app)


class Shown(NamedTuple):
    """A command, and where it is shown."""

    place: str
    words: tuple[str, ...]
    whole: bool
    """Whether it can be typed as it is; else it may lack arguments."""


def commands(path: Path) -> Iterator[Shown]:
    """The command lines of a text: of its blocks, and what stands in backquotes."""
    name = str(path.relative_to(ROOT))
    prose, block = parted(path.read_text())
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|", re.sub(r"\$\(.*?\)", "VALUE", line)):
            if found := re.match(r"\s*(?:\$ )?(?:\S*/bin/)?(modelless [a-z-]+ ?.*)", part):
                yield Shown(name, words_of(found[1]), True)
    for span in re.findall(r"`(modelless [^`]+)`", prose):
        yield Shown(name, words_of(" ".join(span.split())), False)


def parted(text: str) -> tuple[str, str]:
    """The lines outside and inside of its blocks, which are fenced or, after an empty line,
    indented."""
    prose: list[str] = []
    block: list[str] = []
    fenced, before = False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (re.match(r" {4}\S", line) and before in ("", *block[-1:])):
            block.append(line)
        else:
            prose.append(line)
        before = line
    return "\n".join(prose), "\n".join(block)


def words_of(line: str) -> tuple[str, ...]:
    """The words of one command, without what a shell makes of the rest of the line."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quote goes on in the next line
        words = line.split()
    end = next((i for i, word in enumerate(words) if word in ENDS), len(words))
    return tuple(words[1:end])


def examples(command: Any, path: str = "modelless") -> Iterator[Shown]:
    """Those that the help of commands shows, each on a line of its own."""
    help_text = re.sub(r"\\\n\s*", "", command.help or "")
    # What stands two spaces away says what it does.
    for line in re.findall(r"^\s*(modelless [a-z-]+(?: \S+)*)", help_text, re.MULTILINE):
        yield Shown(f"{path} --help", words_of(line), True)
    if hasattr(command, "list_commands"):
        context = command.make_context(path, [], resilient_parsing=True)
        for name in command.list_commands(context):
            yield from examples(command.get_command(context, name), f"{path} {name}")


SHOWN = sorted({one for path in TEXTS for one in commands(path)} | {*examples(MODELLESS)})


def wrong(words: tuple[str, ...], whole: bool) -> str:
    """What a command line has that is not there; empty where nothing is wrong with it."""
    command: Any = MODELLESS
    path, left = ["modelless"], list(words)
    while hasattr(command, "list_commands"):
        if not left or left[0].startswith("-"):
            if not getattr(command, "usual", ""):
                return "" if not whole or command is MODELLESS else "no command is named"
            left.insert(0, command.usual)
        elif getattr(command, "usual", "") and command.means_usual(left[0]):
            left.insert(0, command.usual)
        context = command.make_context(path[-1], [], resilient_parsing=True)
        named = command.get_command(context, left[0])
        if named is None:
            return f"there is no command {' '.join(path)} {left[0]}"
        command, path, left = named, [*path, left[0]], left[1:]
    context = command.make_context(path[-1], [], resilient_parsing=True)
    try:
        if whole:
            command.make_context(path[-1], left)
        else:
            command.make_parser(context).parse_args(args=left)
    except typer.TyperException as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("shown", SHOWN, ids=lambda one: f"{one.place}: {' '.join(one.words)[:60]}")
def test_a_command_that_a_text_shows_is_there_with_its_options(shown: Shown) -> None:
    assert wrong(shown.words, shown.whole) == ""


def test_the_texts_show_commands() -> None:
    readme = {" ".join(one.words) for one in SHOWN if one.place == "README.md" and one.whole}
    assert "query digits --latency-ms 50 --accuracy 0.97" in readme
    assert {"modelless query --help", "modelless keys add --help"} <= {one.place for one in SHOWN}
    assert wrong(("query", "digits", "--latency", "5"), True)
    assert wrong(("taks", "list"), False)


def test_every_bench_that_a_text_shows_is_there() -> None:
    texts = [*TEXTS, *(ROOT / "docs" / "decisions").glob("*.md")]
    shown = {
        (str(path.relative_to(ROOT)), name)
        for path in texts
        for name in re.findall(r"python -m ((?:tests|examples)[\w.]+)", path.read_text())
    }
    assert [(path, name) for path, name in sorted(shown) if find_spec(name) is None] == []

"""A command may take options that are declared together, as the fields of a dataclass."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from controlplane.cli.option_groups import with_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    width: Annotated[int, typer.Option("--width", "-w", min=1)]
    height: Annotated[int | None, typer.Option("--height")] = None


@with_groups
def draw(
    name: Annotated[str, typer.Argument()],
    before: Annotated[bool, typer.Option("--before")] = False,
    *,
    sizes: Sizes,
    after: Annotated[str, typer.Option("--after")] = "x",
) -> None:
    print(name, before, sizes, after)


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(draw)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("a", "-w", "3"), "a False Sizes(width=3, height=None) x\n"),
        (
            ("a", "--before", "--height", "4", "--width", "3", "--after", "z"),
            "a True Sizes(width=3, height=4) z\n",
        ),
    ],
)
def test_options_of_a_group_reach_the_command_as_one_value(
    arguments: tuple[str, ...], printed: str
) -> None:
    assert run(*arguments) == (0, printed)


def test_a_group_keeps_what_its_options_demand() -> None:
    code, said = run("a")
    assert code == 2
    assert "Missing option '--width'" in said
    assert run("a", "--width", "0")[0] == 2


def test_options_of_a_group_stand_in_the_help_where_the_group_is_declared() -> None:
    said = run("--help")[1]
    places = [said.index(f"--{name}") for name in ("before", "width", "height", "after")]
    assert places == sorted(places)

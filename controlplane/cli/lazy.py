"""A command group that imports a command only when it runs, and shows its help in sections.

The root's help comes from the table alone, so ``modelless --help`` imports no command at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command of the root: where it is, and its line of help."""

    name: str
    target: str
    """``module:attribute``; the attribute is a function, or a Typer application for a group."""
    help: str


class LazyGroup(TyperGroup):
    """The root. Made by ``lazy_group`` with its table."""

    sections: Mapping[str, Sequence[Entry]] = {}

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._entries = {entry.name: entry for part in self.sections.values() for entry in part}
        # Typer looks here for what to suggest after a typing error.
        self.commands = {name: TyperCommand(name) for name in self._entries}

    def list_commands(self, ctx: "Context") -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        entry = self._entries.get(cmd_name)
        return load(entry) if entry else None

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        width = max(len(name) for name in self._entries)
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.help) for entry in entries])


def lazy_group(sections: Mapping[str, Sequence[Entry]]) -> type[LazyGroup]:
    """A group class with this table, for ``typer.Typer(cls=...)``."""
    return type("Root", (LazyGroup,), {"sections": sections})


def load(entry: Entry) -> "Command":
    """Import a command."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(module), attribute)
    command: Command
    if isinstance(found, typer.Typer):
        command = get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name=entry.name)(found)
        command = get_command(alone)
    command.name = entry.name
    return command

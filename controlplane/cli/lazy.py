"""A command group that imports a command only when it runs, and shows its help in sections.

The root's help comes from the table alone, so ``modelless --help`` imports no command at all.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from controlplane.cli.completion import complete_names

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter
    from typer._click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One command of the root: where it is, and its line of help."""

    name: str
    target: str
    """``module:attribute``; the attribute is a function, or a Typer application for a group."""
    help: str


class PlainCommand(TyperCommand):
    """A command whose help says each thing once: no types beside names, no ranges beside words."""

    def collect_usage_pieces(self, ctx: "Context") -> list[str]:
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        names = [_argument_name(one) for one in arguments]
        shown = [
            name if one.required else f"[{name}]"
            for one, name in zip(arguments, names, strict=True)
        ]
        return ["[OPTIONS]", *shown]

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        args = self._with_format(args)
        given = list(args)
        try:
            left = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            _in_plain_words(error)
            raise
        self._refuse_parted_numbers(ctx, given)
        return left

    def _with_format(self, args: list[str]) -> list[str]:
        """``--json`` as ``--output json``, which many a command line has by that name."""
        own = {name for one in self.params for name in one.opts}
        if "--output" not in own or "--json" in own:
            return args
        end = args.index("--") if "--" in args else len(args)
        named = ["--output=json" if one == "--json" else one for one in args[:end]]
        return [*named, *args[end:]]

    def _refuse_parted_numbers(self, ctx: "Context", given: list[str]) -> None:
        """
        Raises:
            BadParameter: a number is written ``1_000``, which Typer reads as 1000.
        """
        if not any("_" in text for text in given):
            return
        from controlplane.wrong_values import NO_VALUE, as_share

        texts, _, _ = self.make_parser(ctx).parse_args(args=given)
        one: Any
        for one in self.params:
            value, text = ctx.params.get(one.name or ""), texts.get(one.name or "")
            if type(value) in (int, float) and isinstance(text, str) and "_" in text:
                kind = "float_parsing" if type(value) is float else "int_parsing"
                message = NO_VALUE[kind] + as_share(one.name or "")
                raise typer.BadParameter(message, ctx, cast("Any", one))

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        arguments, options = [], []
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if one.param_type_name == "argument":
                arguments.append((_argument_name(one), getattr(one, "help", "") or ""))
            elif record is not None:
                options.append((record[0], RANGE.sub("", record[1])))
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl(options)


RANGE = re.compile(r"  \[[^;\]]*\bx[<>]=[^;\]]*\]|; [^;\[\]]*\bx[<>]=[^;\[\]]*")
"""``[x>=0]`` by itself, or ``; x>=0`` behind a default."""


def _in_plain_words(error: typer.BadParameter) -> None:
    """Say what is wrong with a value as the settings say it, where Typer has it from pydantic."""
    from pydantic import ValidationError

    from controlplane.wrong_values import as_share, wrong_value

    if isinstance(error.__cause__, ValidationError):
        error.message = wrong_value(error.__cause__.errors()[0])
        if error.param is not None:
            error.message += as_share(error.param.name or "")


class LookingGroup(TyperGroup):
    """A group that lists, or shows what there is one of, where no command of it is named.

    ``modelless events --since 1h`` is ``modelless events list --since 1h``, and where the list is
    of something, ``modelless variants digits`` is ``modelless variants list digits``.
    """

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        first = args[0] if args else "-"
        asked = first in ctx.help_option_names or ctx.resilient_parsing  # of a shell that completes
        if not asked and self.means_usual(first):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

    @property
    def usual(self) -> str:
        """The first of its commands that looks, and needs no argument; empty where none does."""
        for name, command in self.commands.items():
            if name in LOOKING and not any(one.required for one in command.params):
                return name
        return ""

    def means_usual(self, first: str) -> bool:
        """Whether a word cannot be meant as one of its commands, mistyped or not."""
        if not self.usual or first.startswith("-"):
            return bool(self.usual)
        of_something = any(
            one.param_type_name == "argument" for one in self.commands[self.usual].params
        )
        return of_something and not get_close_matches(first, self.commands)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        if self.usual:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"`{ctx.command_path}` is `{ctx.command_path} {self.usual}`.")


LOOKING = ("list", "get")
"""Commands of groups that change nothing."""


def _argument_name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


class LazyGroup(TyperGroup):
    """The root. Made by ``lazy_group`` with its table."""

    sections: Mapping[str, Sequence[Entry]] = {}

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._entries = {entry.name: entry for part in self.sections.values() for entry in part}
        self._completing = False
        # Typer looks here for what to suggest after a typing error.
        self.commands = {name: TyperCommand(name) for name in self._entries}

    def list_commands(self, ctx: "Context") -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(cmd_name, help=entry.help) if self._completing else load(entry)

    def shell_complete(self, ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        """Names of commands and their lines of help, which need none of the commands."""
        self._completing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._completing = False

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
        for one in found.registered_commands:
            one.cls = PlainCommand
        found.info.cls = LookingGroup
        command = get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name=entry.name, cls=PlainCommand)(found)
        command = get_command(alone)
    command.name = entry.name
    return complete_names(command)

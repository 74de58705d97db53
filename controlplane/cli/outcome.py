"""How a command ends: what it prints in which format, and with which exit code."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

import typer

from controlplane.cli.render import usd_per_million
from variants.errors import Alternative, InvalidInput, ModellessError, SeveralMeant, SloInfeasible
from variants.figures import accuracy_text, figure, fixed

DONE = 0
REFUSED = 1
"""The system refused or failed."""
WRONG_INPUT = 2
NOT_RUNNING = 3
INTERRUPTED = 130
MOST_REASONS = 5
"""Of variants that cannot answer a query are told where none comes close."""
EXPLAINS = "`modelless explain` with the same needs says of each variant why"
POSSIBLE = re.compile(r" \(Possible options: (.+)\)$")


class NotRunning(ModellessError):
    """No gateway runs where one was expected."""

    code = "NOT_RUNNING"
    retryable = True


class WrongUsage(InvalidInput):
    """A command line that is none of a command's."""

    def __init__(self, message: str, usage: tuple[str, ...] = ()) -> None:
        """``usage`` says in a few lines how the command is used."""
        super().__init__(message)
        self.usage = usage


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(slots=True)
class Session:
    """One run of the command line."""

    output: Output = Output.TABLE


def _remember(ctx: typer.Context, output: Output) -> Output:
    """Keep the chosen format, so that an error is printed in it as well."""
    session = ctx.find_root().obj
    if isinstance(session, Session) and output is not Output.TABLE:
        session.output = output
    return output


def remember_json(ctx: typer.Context, json: bool) -> bool:
    if json:
        _remember(ctx, Output.JSON)
    return json


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", callback=_remember, help="Format of what is printed."),
]


JsonOption = Annotated[
    bool, typer.Option("--json", callback=remember_json, help="The same as -o json.")
]


def emit(data: Any, output: Output, table: Callable[[], None]) -> None:
    """Print plain JSON values: for machines as they are, for people through ``table``."""
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    elif output is Output.YAML:
        import yaml

        typer.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())
    else:
        table()


def report_usage(error: typer.TyperException, output: Output) -> int:
    """Print what Typer says of a command line as ``report`` does, and return the exit code.

    Where a group was given no command, Typer says its help.
    """
    context = getattr(error, "ctx", None)  # of kinds that Typer does not export
    if context is not None and error.message == context.get_help():
        print(error.message, file=sys.stderr)
        return WRONG_INPUT
    usage: tuple[str, ...] = ()
    if context is not None:
        command = f"{context.command_path} {context.help_option_names[-1]}"
        usage = (*_missing(error), _lower(context.get_usage()), f"`{command}` explains it")
    sentence = POSSIBLE.sub(_meant, _lower(error.format_message()).removesuffix("."))
    return report(WrongUsage(sentence, usage), output)


def _missing(error: typer.TyperException) -> tuple[str, ...]:
    """What an option is that was left out and must be given, as its help has it."""
    missing = getattr(error, "param", None)
    if error.message or missing is None or missing.param_type_name != "option":
        return ()  # it was given, and is wrong
    return (f"{missing.opts[0]} {missing.metavar}: {missing.help}",)


def wanted_output(arguments: Sequence[str]) -> Output:
    """The format that a command line asks for, also where the rest of it cannot be read."""
    if "--json" in arguments:
        return Output.JSON
    for option, value in pairwise((*arguments, "")):
        name, _, joined = option.partition("=")
        if name in ("-o", "--output") and (joined or value) in (Output.JSON, Output.YAML):
            return Output(joined or value)
    return Output.TABLE


def _meant(possible: re.Match[str]) -> str:
    """Options that may be meant, in the words that Typer has for commands."""
    *others, last = possible[1].split(", ")
    return f". Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def exit_code(error: ModellessError) -> int:
    """Which of the exit codes an error means."""
    if isinstance(error, NotRunning):
        return NOT_RUNNING
    return WRONG_INPUT if isinstance(error, InvalidInput) else REFUSED


def report(error: ModellessError, output: Output) -> int:
    """Print an error to standard error and return its exit code.

    For people it is one sentence, and for an infeasible SLO what comes closest or why nothing does,
    for a wrong command line how the command is used; for machines one line of JSON with ``error``,
    ``code`` and ``retryable``.
    """
    if output is Output.TABLE:
        print(f"error: {error.message}", file=sys.stderr)
        for line in _more(error):
            print(f"  {line}", file=sys.stderr)
    else:
        import orjson

        body: dict[str, Any] = {
            "error": error.message,
            "code": error.code,
            "retryable": error.retryable,
        }
        if isinstance(error, SloInfeasible):
            body["reasons"] = error.reasons
            body["alternatives"] = [asdict(one) for one in error.alternatives]
        elif isinstance(error, SeveralMeant):
            body["choices"] = {str(number): words for number, words in error.choices.items()}
        elif error.retry_after_s is not None:
            body["retry_after_s"] = error.retry_after_s
        print(orjson.dumps(body).decode(), file=sys.stderr)
    return exit_code(error)


def _more(error: ModellessError) -> list[str]:
    if error.retry_after_s is not None:
        return [f"try again in {fixed(error.retry_after_s)} s"]
    if isinstance(error, WrongUsage):
        return list(error.usage)
    if isinstance(error, SeveralMeant):
        return [f"{error.option}{number}: {words}" for number, words in error.choices.items()]
    if not isinstance(error, SloInfeasible):
        return []
    if not error.alternatives:
        why = [f"{variant}: {reason}" for variant, reason in error.reasons.items()]
        more = len(why) - MOST_REASONS
        return [*why[:MOST_REASONS], *([f"and {more} more; {EXPLAINS}"] * (more > 0))]
    nearest = [
        f"{one.variant}: accuracy {accuracy_text(one.accuracy)}, {fixed(one.latency_ms, 2)} ms, "
        f"{usd_per_million(one.cost_usd_per_1k)} USD per million{_joules(one)} ({one.reason})"
        for one in error.alternatives
    ]
    return ["the closest are", *nearest, EXPLAINS]


def _joules(one: Alternative) -> str:
    return "" if one.energy_j is None else f", {figure(one.energy_j)} J"

"""All commands in one table, and the application that is made of it."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from controlplane.cli.lazy import Entry, lazy_group
from controlplane.cli.outcome import DONE, Session, report, report_usage, wanted_output
from variants.disk import full_disk_explained
from variants.errors import ModellessError

COMMANDS = {
    "Serve": (
        Entry(
            name="up",
            target="controlplane.cli.commands.lifecycle:up",
            help="Start everything and serve.",
        ),
        Entry(
            name="down",
            target="controlplane.cli.commands.lifecycle:down",
            help="Stop what `up --detach` started.",
        ),
        Entry(
            name="upgrade",
            target="controlplane.cli.upgrading:upgrade",
            help="Replace what runs, one by one, while it serves.",
        ),
        Entry(
            name="status",
            target="controlplane.cli.commands.status:status",
            help="Say what is running.",
        ),
        Entry(
            name="doctor",
            target="controlplane.cli.commands.doctor:doctor",
            help="Check that everything can run here.",
        ),
        Entry(
            name="backup",
            target="controlplane.cli.commands.backup:backup",
            help="Copy catalog and artifacts into one file.",
        ),
        Entry(
            name="restore",
            target="controlplane.cli.commands.backup:restore",
            help="Fill an empty installation with a backup.",
        ),
    ),
    "Ask": (
        Entry(
            name="query",
            target="controlplane.cli.commands.asking.query:query",
            help="Ask for a task within an SLO.",
        ),
        Entry(
            name="batch",
            target="controlplane.cli.commands.asking.batch:batch",
            help="Answer all rows of a file with whatever capacity is free.",
        ),
        Entry(
            name="replay",
            target="controlplane.cli.commands.asking.replay:replay",
            help="Play a trace against what runs, and compare with the simulator.",
        ),
        Entry(
            name="feedback",
            target="controlplane.cli.commands.asking.feedback:feedback",
            help="Say which classes of an answer were right.",
        ),
    ),
    "Look": (
        Entry(
            name="tasks",
            target="controlplane.cli.commands.tasks:tasks",
            help="What can be asked for.",
        ),
        Entry(
            name="models",
            target="controlplane.cli.commands.look:models",
            help="Models and versions.",
        ),
        Entry(
            name="variants",
            target="controlplane.cli.commands.look:variants",
            help="Accuracy, latency, price and memory of each variant.",
        ),
        Entry(
            name="workers",
            target="controlplane.cli.commands.workers:workers",
            help="Workers: what they have loaded, and how many there are.",
        ),
        Entry(
            name="devices",
            target="controlplane.cli.commands.nodes:devices",
            help="Device kinds: cores, memory, price, and how many.",
        ),
        Entry(
            name="nodes",
            target="controlplane.cli.commands.nodes:nodes",
            help="Nodes of a cluster; drain one that is about to go.",
        ),
        Entry(
            name="plan",
            target="controlplane.cli.commands.look:plan",
            help="The plan and its reasons; solve one from files.",
        ),
        Entry(
            name="explain",
            target="controlplane.cli.commands.asking.explain:explain",
            help="Why a query would be answered as it would.",
        ),
        Entry(
            name="top",
            target="controlplane.cli.commands.asking.top:top",
            help="All of it on one screen, drawn again each second.",
        ),
        Entry(
            name="events", target="controlplane.cli.commands.events:events", help="What happened."
        ),
        Entry(
            name="runbook",
            target="controlplane.cli.commands.runbook:runbook",
            help="What an alert means, where to look, and what to do.",
        ),
    ),
    "Add and keep models": (
        Entry(
            name="register",
            target="controlplane.cli.commands.models.register:register",
            help="Add a model: check it, build its variants, measure them.",
        ),
        Entry(
            name="profile",
            target="controlplane.cli.commands.models.profile:profile",
            help="Measure variants whose profile is missing or doubted.",
        ),
        Entry(
            name="canary",
            target="controlplane.cli.commands.models.canary:canary",
            help="Give a new version a share of the queries.",
        ),
        Entry(
            name="promote",
            target="controlplane.cli.commands.models.stage:promote",
            help="Make a model version live.",
        ),
        Entry(
            name="rollback",
            target="controlplane.cli.commands.models.canary:rollback",
            help="End a canary's share, or go back to the version before.",
        ),
        Entry(
            name="retire",
            target="controlplane.cli.commands.models.stage:retire",
            help="Take a model version out of service.",
        ),
        Entry(
            name="delete",
            target="controlplane.cli.commands.models.stage:delete",
            help="Delete a retired model version for good.",
        ),
        Entry(
            name="remove",
            target="controlplane.cli.commands.models.stage:delete",
            help="The same as `delete`.",
        ),
        Entry(
            name="quarantine",
            target="controlplane.cli.commands.models.stage:quarantine",
            help="Variants that are kept out because they failed.",
        ),
        Entry(
            name="answers",
            target="controlplane.cli.commands.models.answers:answers",
            help="Whether answers have changed, and that this is as it should be.",
        ),
        Entry(
            name="repair",
            target="controlplane.cli.commands.models.repair:repair",
            help="Build damaged artifacts again from their sources.",
        ),
        Entry(
            name="artifacts",
            target="controlplane.cli.commands.models.artifacts:artifacts",
            help="Find stored artifacts that nothing uses.",
        ),
    ),
    "Change": (
        Entry(
            name="pin",
            target="controlplane.cli.commands.residency.variants:pin",
            help="Have a variant stay loaded.",
        ),
        Entry(
            name="forbid",
            target="controlplane.cli.commands.residency.variants:forbid",
            help="Have a variant answer nothing and be loaded nowhere.",
        ),
        Entry(
            name="evict",
            target="controlplane.cli.commands.residency.variants:evict",
            help="Unload a variant now, once.",
        ),
        Entry(
            name="freeze",
            target="controlplane.cli.commands.residency.rules:freeze",
            help="Have the plan stay as it is.",
        ),
        Entry(
            name="thaw",
            target="controlplane.cli.commands.residency.rules:thaw",
            help="Let plans be made again.",
        ),
        Entry(
            name="rules",
            target="controlplane.cli.commands.residency.rules:rules",
            help="What operators said: list it, take one back.",
        ),
        Entry(
            name="drain",
            target="controlplane.cli.commands.workers:drain",
            help="Have a worker leave for another one, or a node go.",
        ),
        Entry(
            name="peaks",
            target="controlplane.cli.commands.planning.peaks:peaks",
            help="Peaks of demand that are known beforehand.",
        ),
        Entry(
            name="keys",
            target="controlplane.cli.commands.keys:keys",
            help="Keys of clients: make one, list them, take one back.",
        ),
    ),
    "Try from files": (
        Entry(
            name="simulate",
            target="controlplane.cli.commands.planning.simulate:simulate",
            help="Try a policy on a trace, in simulated time.",
        ),
        Entry(
            name="export",
            target="controlplane.cli.commands.planning.export:export",
            help="Catalog and devices as files, to simulate what runs.",
        ),
    ),
}
"""All commands, by section of the help, which are those of its reference."""

app = typer.Typer(
    name="modelless",
    cls=lazy_group(COMMANDS),
    help="Ask for a task, not a model.",
    epilog="`modelless up --example digits` makes models to begin with; `modelless COMMAND --help` "
    "explains a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"modelless {version('modelless')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Ask for a task, not a model."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; an error becomes one sentence."""
    # httpx imports a command line of its own where it can, which takes as long as the rest of it.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    session = Session()
    try:
        with full_disk_explained():
            code = app(args=arguments, prog_name="modelless", obj=session, standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except ModellessError as error:
        return report(error, session.output)
    except typer.TyperException as error:
        given = sys.argv[1:] if arguments is None else arguments
        return report_usage(error, wanted_output(given))

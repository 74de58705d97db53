"""Names of tasks, models and variants for a shell that completes them.

A shell waits for each, so they are read from the catalog's file on this machine, with what Python
has for that: to import SQLAlchemy alone takes longer than the rest. Where the catalog is elsewhere,
or does not answer at once, nothing is offered and nothing said.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer._click import Command, Context
    from typer._click.shell_completion import CompletionItem

PATIENCE_S = 0.1
"""How long the file may be locked."""
QUERIES = {
    "TASK": "SELECT name, bucket FROM tasks",
    "MODEL": "SELECT model FROM versions"
    " WHERE ?1 IN (task, '') OR task IN (SELECT name FROM tasks WHERE bucket LIKE ?2)",
    "VARIANT": "SELECT name FROM variants"
    " WHERE ?1 IN (task, '') OR task IN (SELECT name FROM tasks WHERE bucket LIKE ?2)",
}
"""By what an argument or option is called. The tables are in ``variants.catalog.tables``."""


def complete_names(command: "Command") -> "Command":
    """Have the arguments of a command, and of the commands of a group, complete such names."""
    for one in getattr(command, "commands", {}).values():
        complete_names(one)
    for param in command.params:
        asked = str(getattr(param, "metavar", "") or "")
        if asked in QUERIES:
            setattr(param, "shell_complete", _completer(asked))  # noqa: B010
    return command


def names(asked: str, task: str | None) -> list[str]:
    """All names there are, in their order; none where they cannot be read.

    Args:
        asked: one of ``QUERIES``.
        task: of which models or variants are asked; None: of all, as behind an option that is not
            complete the arguments are not known yet.
    """
    try:
        return sorted(set(_read(asked, task)))
    except (OSError, ValueError, sqlite3.Error):
        return []


def _completer(asked: str) -> "Callable[[Context, str], list[CompletionItem]]":
    def complete(ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        from typer._click.shell_completion import CompletionItem

        task = ctx.params.get("task")
        found = names(asked, task if isinstance(task, str) else None)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def _read(asked: str, task: str | None) -> Iterator[str]:
    folder = Path(os.environ.get("MODELLESS_STATE_DIR") or "~/.modelless").expanduser()
    if os.environ.get("MODELLESS_DATABASE_URL") or os.environ.get("MODELLESS_URL"):
        return
    of = () if asked == "TASK" else (task or "", f'%"of": {json.dumps(task or "")}%')
    uri = f"{(folder / 'catalog.db').absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE_S)) as catalog:
        rows: list[tuple[Any, ...]] = catalog.execute(QUERIES[asked], of).fetchall()
    for name, *bucket in rows:
        yield str(name)
        if bucket and bucket[0]:  # clients ask by the name that all lengths share
            yield str(json.loads(bucket[0])["of"])

"""What commands print for people: ``tables``, ``lines`` and the ``words`` in them, ``task_words``
of a task, and ``event_lines``, what happened.

``bars`` shows how far long work is; it is imported where a bar is drawn, since Rich takes long.
"""

from controlplane.cli.render.lines import console, details, hanging, note
from controlplane.cli.render.tables import fits, table
from controlplane.cli.render.words import (
    WITHOUT_KEY,
    clock,
    clock_cell,
    half_interval,
    interval,
    joules,
    mib,
    ms,
    percent,
    printable,
    rate,
    seconds,
    tensor,
    usd,
    usd_per_million,
    wanted_words,
    what_is_new,
)

__all__ = [
    "WITHOUT_KEY",
    "clock",
    "clock_cell",
    "console",
    "details",
    "fits",
    "half_interval",
    "hanging",
    "interval",
    "joules",
    "mib",
    "ms",
    "note",
    "percent",
    "printable",
    "rate",
    "seconds",
    "table",
    "tensor",
    "usd",
    "usd_per_million",
    "wanted_words",
    "what_is_new",
]

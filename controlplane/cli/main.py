"""``modelless``: the command line's entry and its exit codes.

Exit codes: 0 done; 1 the system refused or failed; 2 the input is wrong; 3 nothing is running;
130 interrupted.

At the top of this module almost nothing is imported: before ``main`` runs, an interrupt ends in a
traceback. The commands and what they need are imported inside of it.
"""

import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""As ``controlplane.cli.outcome`` has it, which imports too much to be imported here."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default this process's own, and exit.

    An error becomes one sentence and its exit code.
    """
    try:
        from controlplane.cli.commands.root import run

        sys.exit(run(arguments))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        _end_by_exit_code()


def _end_by_exit_code() -> None:
    """Let a process that was interrupted end with its exit code.

    CPython notes that a ``KeyboardInterrupt`` left code which was given as text, as ``dataclasses``
    runs it while a module is imported. A process that was started with ``python -m`` then dies of
    SIGINT in the end, though the interrupt was caught (``_Py_UnhandledKeyboardInterrupt`` in
    ``Python/pythonrun.c``). The note is taken back when other text is run.
    """
    exec("")  # noqa: S102


if __name__ == "__main__":
    main()

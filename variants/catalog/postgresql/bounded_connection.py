"""A connection to PostgreSQL that waits for no answer longer than it may.

A server that is stopped, or whose disk hangs, keeps its connections and answers nothing. No limit
of libpq ends that wait: the kernel of the server's machine goes on acknowledging what it gets.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

Result = TypeVar("Result")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends itself where nothing comes from the server for ``longest_s`` while it has to answer."""

    longest_s = float("inf")

    def wait(self, gen: PQGen[Result], *args: Any, **kwargs: Any) -> Result:
        """As psycopg has it, for what every statement does with the connection.

        Raises:
            psycopg.OperationalError: nothing came for so long; the connection is closed then.
        """
        return super().wait(self._while_it_answers(gen), *args, **kwargs)

    def _while_it_answers(self, gen: PQGen[Result]) -> Generator[Any, Any, Result]:
        """The same steps. psycopg takes one several times a second with nothing, too."""
        heard_s = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard_s = monotonic()
                elif monotonic() - heard_s > self.longest_s:
                    gen.close()
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.longest_s:,g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            result: Result = ended.value
            return result

"""Entries that installed packages add to a registry, found by their entry points.

A package outside of this project declares, in its ``pyproject.toml``, a name and a factory in a
group such as ``modelless.runtimes``::

    [project.entry-points."modelless.runtimes"]
    tea = "tea_runtime:TeaRuntime"

Every process that runs in the environment of the package finds it: the command line, the trial
processes that measure variants, and the workers. Nothing of the package is imported before its name
is asked for.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points

from variants.registry import Entry


class Entries(Mapping[str, Entry]):
    """The entries of this project, then those that installed packages add to their group.

    A name of this project cannot be taken by a package. Packages are looked for only when a name is
    asked for that is not among the project's own, or when all names are listed.
    """

    def __init__(self, group: str, own: Mapping[str, Entry]) -> None:
        """
        Args:
            group: of the entry points, for example ``modelless.runtimes``.
            own: the entries of this project.
        """
        self._group = group
        self._own = own

    def __getitem__(self, name: str) -> Entry:
        return self._own[name] if name in self._own else added(self._group)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in added(self._group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def added(group: str) -> Mapping[str, Entry]:
    """Entries that installed packages declare in a group, by name in alphabetical order.

    What such an entry needs is the package that it is in. The result is kept for the life of the
    process, because reading it takes about 10 ms: a package that is installed later is seen by
    processes that start later.
    """
    found = sorted(entry_points(group=group), key=lambda point: (point.name, point.value))
    return {
        point.name: Entry(target=point.value, needs=(point.module.partition(".")[0],))
        for point in found
    }

"""Seconds spent on reloading under each eviction rule, as pure caches: loads take no time.

Run with ``python -m tests.bench.planning.eviction`` from the repository's root; ``--quick`` takes
one seed. Memory is a share of what all variants need, divided among one, two, four or eight
devices that can each hold the largest variant. A query needs its variant loaded on any of them, and
what has to be loaded is paid for with its load time. With several devices,
``tests.bench.planning.hosts`` says which of them loads. All devices learn from all queries, as in
the simulator; with ``--own-books`` each from those that it is asked, as the product's workers do,
and each of ``--gateways`` that choose hosts, too (offline and known rates know everything). Nothing
depends on the machine.
``--production`` plays ``tests.bench.planning.production_trace`` instead.

* LRU: total load time in seconds; the other rules in percent of it.
* offline: knows the next use, and evicts the least load / memory / distance. Not a bound: it is
  greedy. With several devices what is due at once weighs so much that hosts are chosen badly.
* offline, later: the same with every next use ``LATER_S`` later, which loads less.
* known rates: ``modelless`` if it knew the true rate of every variant at every moment: what
  perfect learning would give. Not what is best: it does not know how rates will change.
* to GDSF: modelless / GDSF, on the same devices with the same host choice; the goal is at most 1.
* half way: (GDSF - modelless) / (GDSF - offline), likewise. The goal is 0.5; beside it the same of
  known rates.

A table at the end has a row for each count of devices and host choice; means are geometric.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from statistics import geometric_mean, median

from planner.eviction.popularity import Popularity
from tests.bench.planning.cache_workloads import COSTS, KINDS, STEPS, Workload, workload
from tests.bench.planning.hosts import HOSTS, Newcomer, chooser
from tests.bench.planning.production_trace import production
from tests.bench.planning.residency import Book, Residency

SHARES = (0.10, 0.25, 0.50)
"""Memory, of what all variants need together."""
PUBLISHED = ("lru", "lfu", "gdsf")
COLUMNS = (*PUBLISHED, "modelless", "known rates", "offline", "offline, later")
LATER_S = 10.0
"""For ``offline, later``. Of 0, 1, 3, 10, 30 and 100 s it loads least on one device (3 % less than
with 0, 54 lines of 5,000 queries), and 30 s 1 % less than 10 s on eight."""
DEVICES = (1, 2, 4, 8)
PER_DEVICE = 0.1
"""Memory of a device in the production-like trace, of what all variants need together."""


class NextUse:
    """Knows when each variant is asked for next.

    Args:
        later_s: is added to the time until then, so that what is due at once is not worth more than
            all else together.
    """

    def __init__(self, load: Workload, later_s: float = 1e-9) -> None:
        self._later_s = later_s
        coming: dict[int, float] = {}
        self._after_s = []
        for at_s, variant in zip(reversed(load.arrival_s), reversed(load.variant), strict=True):
            self._after_s.append(coming.get(variant, inf))
            coming[variant] = at_s
        self._next_s: dict[int, float] = {}

    def seen(self, key: int, now_s: float) -> None:
        self._next_s[key] = self._after_s.pop()

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        # What is asked for now may not have been told yet.
        known, coming_s = self._next_s, self._after_s[-1] if self._after_s else inf
        due_s = [at_s if (at_s := known.get(key, now_s)) > now_s else coming_s for key in keys]
        return [1.0 / max(at_s - now_s + self._later_s, 1e-9) for at_s in due_s]


class TrueRates:
    """Knows the rates that the queries are drawn from, not the draws."""

    def __init__(self, load: Workload) -> None:
        assert load.rates is not None
        self._rates = load.rates.tolist()
        self._step_s = load.step_s

    def seen(self, key: int, now_s: float) -> None:
        pass

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        now = self._rates[min(STEPS - 1, int(now_s / self._step_s))]
        return [now[key] for key in keys]


def reloading_s(
    load: Workload,
    memory_mib: float,
    rule: str,
    books: Sequence[Book[int]],
    hosts: str = HOSTS[0],
    gateways: Sequence[Book[int]] = (),
) -> float:
    """Total load time of a workload. The largest variant always fits on a device.

    Args:
        memory_mib: of all devices together, unless each needs more for the largest variant.
        books: of each device; the same one again where all know all queries. A device with a book
            of its own counts those queries that it is asked.
        gateways: the books of those that choose hosts, who are asked in turns; none: the devices'
            book is theirs as well.
    """
    # A hair more: what is freed adds up with rounding.
    each_mib = max(memory_mib / len(books), *load.memory_mib) * (1.0 + 1e-9)
    book_of = {Residency(each_mib, book, rule, min_residency_s=0.0): book for book in books}
    known = list(book_of)
    choose = chooser(hosts) if len(known) > 1 else lambda known, newcomer, now_s: known[0]
    told = gateways if gateways and len(known) > 1 and hosts == "least worth" else ()
    where: dict[int, Residency[int]] = {}
    total_s = 0.0
    for turn, (now_s, variant) in enumerate(zip(load.arrival_s, load.variant, strict=True)):
        gateway = told[turn % len(told)] if told else None
        if gateway is not None and variant in where:
            gateway.seen(variant, now_s)
        if (held := where.get(variant)) is not None:
            book_of[held].seen(variant, now_s)
            held.used(variant, now_s)
            continue
        qps = 0.0
        if hosts == "least worth" and len(known) > 1:
            (qps,) = (gateway or books[0]).rates((variant,), now_s)
        newcomer = Newcomer(load.memory_mib[variant], load.load_s[variant], qps)
        host = choose(known, newcomer, now_s)
        book_of[host].seen(variant, now_s)
        if gateway is not None:
            gateway.seen(variant, now_s)
        for victim in host.make_room(load.memory_mib[variant], now_s) or ():
            host.evict(victim, now_s)
            del where[victim]
        host.load(variant, load.memory_mib[variant], load.load_s[variant], now_s)
        where[variant] = host
        total_s += load.load_s[variant]
    return total_s


def row(
    load: Workload,
    memory_mib: float,
    devices: int,
    hosts: str,
    columns: Sequence[str],
    own_books: bool = False,
    gateways: int = 1,
) -> dict[str, float]:
    """Total load time by column.

    Args:
        own_books: each device learns from what it is asked alone.
        gateways: with ``own_books``, so many choose hosts, each from the queries that it is asked.
    """
    books: dict[str, Callable[[], Book[int]]] = {
        "modelless": Popularity,
        "known rates": lambda: TrueRates(load),
        "offline": lambda: NextUse(load),
        "offline, later": lambda: NextUse(load, LATER_S),
    }
    # What GDSF and others evict they count by themselves; the worth of it is what the book says.
    needs_book = devices > 1 and hosts.startswith("least")
    found = {}
    for column in columns:
        if column == "known rates" and load.rates is None:
            continue
        make = books.get(column, Popularity if needs_book else _Deaf)
        each: Sequence[Book[int]] = [make()] * devices
        choosing: list[Popularity[int]] = []
        if own_books and make is Popularity:
            each = [Popularity() for _ in range(devices)]
            choosing = [Popularity() for _ in range(gateways)]
        rule = column if column in PUBLISHED else "modelless"
        found[column] = reloading_s(load, memory_mib, rule, each, hosts, choosing)
    return found


def case(
    line: tuple[str, str, float, int, str],
    seed: int,
    *,
    columns: Sequence[str],
    variants: int,
    queries: int,
    per_s: float,
    own_books: bool,
    gateways: int = 1,
) -> dict[str, float]:
    """One seed of one line: the workload, its costs, the memory, the devices, the host choice."""
    kind, how, share, devices, hosts = line
    load = workload(kind, how, seed, variants=variants, queries=queries, per_s=per_s)
    return row(load, share * sum(load.memory_mib), devices, hosts, columns, own_books, gateways)


class _Deaf:
    """For rules that count by themselves."""

    def seen(self, key: int, now_s: float) -> None:
        pass

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        return [0.0 for _ in keys]


def to_gdsf(found: dict[str, float]) -> float:
    """What modelless loads, of what GDSF does on the same devices with the same host choice."""
    return found["modelless"] / found["gdsf"]


def way(found: dict[str, float], column: str = "modelless", to: str = "offline") -> float:
    """How much of the way from GDSF to offline a column goes."""
    return (found["gdsf"] - found[column]) / (found["gdsf"] - found[to])


Line = tuple[str, str, float, int, str]


def described(line: Line, rows: Sequence[dict[str, float]], columns: Sequence[str]) -> str:
    """Medians over the seeds, as a row of a Markdown table; the first column in seconds."""
    kind, how, share, devices, hosts = line
    first = columns[0]
    cells = [kind, how, f"{share:.0%}", str(devices), hosts if devices > 1 else ""]
    cells.append(f"{median(r[first] for r in rows):,.0f}")
    for column in columns[1:]:
        known = [r[column] / r[first] for r in rows if column in r]
        cells.append(f"{median(known):.1%}" if known else "")
    cells.append(f"{median(map(to_gdsf, rows)):.3f}")
    cells.append(f"{median(way(r) for r in rows):.2f}")
    if "known rates" in columns:
        known = [way(r, "known rates") for r in rows if "known rates" in r]
        cells.append(f"{median(known):.2f}" if known else "")
    return "| " + " | ".join(cells) + " |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed instead of three")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these workloads")
    parser.add_argument("--costs", action="append", choices=COSTS, help="only these costs")
    parser.add_argument("--devices", action="append", type=int, help="only so many")
    parser.add_argument("--hosts", action="append", choices=HOSTS, help="only these choices")
    parser.add_argument("--rule", action="append", choices=COLUMNS, help="only these columns")
    parser.add_argument("--variants", type=int, default=100)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--per-s", type=float, default=2.0)
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument(
        "--own-books", action="store_true", help="each device knows only what it is asked"
    )
    parser.add_argument(
        "--gateways", type=int, default=1, help="so many know a part of the queries"
    )
    parser.add_argument("--production", action="store_true", help="the production-like trace")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    seeds = range(1 if asked.quick else 3)
    columns = [c for c in COLUMNS if not asked.rule or c in asked.rule]
    if asked.production:
        print_production(seeds, columns, asked)
        return
    lines = [
        (*each, devices, hosts)
        for devices in asked.devices or DEVICES
        for hosts in (asked.hosts or HOSTS if devices > 1 else HOSTS[:1])
        for each in product(asked.kind or KINDS, asked.costs or COSTS, SHARES)
    ]
    work = partial(
        case, columns=columns, variants=asked.variants, queries=asked.queries, per_s=asked.per_s,
        own_books=asked.own_books, gateways=asked.gateways,
    )  # fmt: skip
    head = ["workload", "costs", "memory", "devices", "hosts", f"{columns[0]}, s", *columns[1:]]
    head += ["to GDSF", "half way", *(["known rates"] if "known rates" in columns else [])]
    print("| " + " | ".join(head) + " |\n" + "|---|---|--:|--:|---|" + "--:|" * (len(head) - 5))
    found: dict[tuple[int, str], list[list[dict[str, float]]]] = {}
    with ProcessPoolExecutor(asked.processes) as pool:
        cases = [(line, seed) for line in lines for seed in seeds]
        results = pool.map(work, *zip(*cases, strict=True))
        for line in lines:
            rows = [next(results) for _ in seeds]
            found.setdefault(line[3:], []).append(rows)
            print(described(line, rows, columns), flush=True)
    for (devices, hosts), them in found.items():
        print(f"\n{devices} device(s)" + (f", {hosts}" if devices > 1 else ""))
        print(verdict(them))
    print("\n" + summary(found))


def print_production(
    seeds: Sequence[int], columns: Sequence[str], asked: argparse.Namespace
) -> None:
    """Seconds of loading with two and four devices, and with one that has their memory."""
    folder = os.environ.get("MODELLESS_BENCH_DATA")
    if not folder:
        sys.exit("MODELLESS_BENCH_DATA names no directory: nothing to measure")
    columns = [column for column in columns if column != "known rates"]
    loads = [
        production(Path(folder), seed, variants=2 * asked.variants, queries=asked.queries)
        for seed in seeds
    ]
    print("| devices | hosts | " + " | ".join(columns) + " |\n|--:|---|" + "--:|" * len(columns))
    for devices in (2, 4):
        for count, hosts in (
            (1, "one memory of that size"),
            *((devices, each) for each in asked.hosts or HOSTS),
        ):
            found = [
                row(
                    load,
                    PER_DEVICE * devices * sum(load.memory_mib),
                    count,
                    hosts,
                    columns,
                    asked.own_books,
                    asked.gateways,
                )
                for load in loads
            ]
            cells = [f"{median(r[column] for r in found):,.0f}" for column in columns]
            print(f"| {devices} | {hosts} | " + " | ".join(cells) + " |", flush=True)


def summary(found: Mapping[tuple[int, str], Sequence[Sequence[dict[str, float]]]]) -> str:
    """Ours and GDSF with the same host choice, a row for each count of devices; lines by median.

    Args:
        found: the total load times of all seeds of all lines, by devices and host choice.
    """
    told = [
        "| devices | hosts | lines | GDSF, s | modelless, s | mean | not above GDSF | at worst"
        " | median | half way, median |\n|--:|---|" + "--:|" * 8
    ]
    for (devices, hosts), lines in found.items():
        gdsf_s = geometric_mean(r["gdsf"] for rows in lines for r in rows)
        ours_s = geometric_mean(r["modelless"] for rows in lines for r in rows)
        ratios = [median(map(to_gdsf, rows)) for rows in lines]
        halves = median(median(map(way, rows)) for rows in lines)
        told.append(
            f"| {devices} | {hosts if devices > 1 else ''} | {len(lines)} | {gdsf_s:,.0f}"
            f" | {ours_s:,.0f} | {ours_s / gdsf_s:.3f} | {sum(x <= 1.0 for x in ratios)}"
            f" | {max(ratios):.3f} | {median(ratios):.3f} | {halves:.2f} |"
        )
    return "\n".join(told)


def verdict(found: Sequence[Sequence[dict[str, float]]]) -> str:
    """How many lines reach the goals, each by its median."""
    ratios = [median(map(to_gdsf, rows)) for rows in found]
    ways = [median(map(way, rows)) for rows in found]
    told = [f"{len(found)} lines, median over {len(found[0])} seeds each:"]
    if "lru" in found[0][0]:
        to_lru = [median(r["modelless"] / r["lru"] for r in rows) for rows in found]
        least = [median(r["offline"] / r["lru"] for r in rows) for rows in found]
        told.append(
            f"- at least 20 % below LRU: {sum(x <= 0.8 for x in to_lru)}"
            f" (offline: {sum(x <= 0.8 for x in least)})"
        )
    told += [
        f"- not above GDSF: {sum(x <= 1.0 for x in ratios)};"
        f" at worst {max(ratios):.3f} of it, median {median(ratios):.3f}",
        f"- half of the way: {sum(x >= 0.5 for x in ways)}, median {median(ways):.2f}",
    ]
    for column in ("offline", "offline, later"):
        if column in found[0][0]:
            worse = [median(r[column] / r["gdsf"] for r in rows) > 1.0 for rows in found]
            told.append(f"- {column} above GDSF: {sum(worse)}")
    if "offline, later" in found[0][0]:
        further = [median(way(r, to="offline, later") for r in rows) for rows in found]
        told.append(f"- way to offline, later: median {median(further):.2f}")
    known = [
        median(way(r, "known rates") for r in rows) for rows in found if "known rates" in rows[0]
    ]
    if known:
        told.append(
            f"- known rates, half of the way: {sum(x >= 0.5 for x in known)} of {len(known)},"
            f" median {median(known):.2f}"
        )
    return "\n".join(told)


if __name__ == "__main__":
    main()

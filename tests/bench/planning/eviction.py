"""Seconds spent on reloading under each eviction rule, as pure caches: loads take no time.

Run with ``python -m tests.bench.planning.eviction`` from the repository's root; ``--quick`` takes
one seed. A memory holds a share of all variants' memory, a query needs its variant loaded, and what
has to be loaded is paid for with its load time. Nothing depends on the machine.

* LRU: total load time in seconds; the other rules in percent of it.
* offline: knows the next use, and evicts the least load / memory / distance.
* known rates: ``modelless`` if it knew the true rate of every variant at every moment: what
  perfect learning would give. Not what is best: it does not know how rates will change.
* half way: (GDSF - modelless) / (GDSF - offline). The goal is 0.5; beside it the same of known
  rates.
"""

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from math import inf
from statistics import median

from planner.eviction.popularity import Book, Popularity
from tests.bench.planning.cache_workloads import COSTS, KINDS, STEPS, Workload, workload
from tests.bench.planning.residency import Residency

SHARES = (0.10, 0.25, 0.50)
"""Memory, of what all variants need together."""
PUBLISHED = ("lru", "lfu", "gdsf")
COLUMNS = (*PUBLISHED, "modelless", "known rates", "offline")


class NextUse:
    """Knows when each variant is asked for next."""

    def __init__(self, load: Workload) -> None:
        coming: dict[int, float] = {}
        self._after_s = []
        for at_s, variant in zip(reversed(load.arrival_s), reversed(load.variant), strict=True):
            self._after_s.append(coming.get(variant, inf))
            coming[variant] = at_s
        self._next_s: dict[int, float] = {}

    def seen(self, key: int, now_s: float) -> None:
        self._next_s[key] = self._after_s.pop()

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        return [1.0 / max(self._next_s[key] - now_s, 1e-9) for key in keys]


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


def reloading_s(load: Workload, share: float, rule: str, book: Book[int]) -> float:
    """Total load time of a workload on one device. The largest variant always fits."""
    memory_mib = max(share * sum(load.memory_mib), *load.memory_mib)
    cache = Residency(memory_mib, book, rule, min_residency_s=0.0)
    total_s = 0.0
    for now_s, variant in zip(load.arrival_s, load.variant, strict=True):
        book.seen(variant, now_s)
        if variant in cache:
            cache.used(variant, now_s)
            continue
        for victim in cache.make_room(load.memory_mib[variant], now_s) or ():
            cache.evict(victim)
        cache.load(variant, load.memory_mib[variant], load.load_s[variant], now_s)
        total_s += load.load_s[variant]
    return total_s


def row(
    case: tuple[str, str, float, int], *, variants: int, queries: int, per_s: float
) -> dict[str, float]:
    """Total load time by column."""
    kind, how, share, seed = case
    load = workload(kind, how, seed, variants=variants, queries=queries, per_s=per_s)
    run = partial(reloading_s, load, share)
    found = {rule: run(rule, _Deaf()) for rule in PUBLISHED}
    found["modelless"] = run("modelless", Popularity())
    if load.rates is not None:
        found["known rates"] = run("modelless", TrueRates(load))
    found["offline"] = run("modelless", NextUse(load))
    return found


class _Deaf:
    """For rules that count by themselves."""

    def seen(self, key: int, now_s: float) -> None:
        pass

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        return [0.0 for _ in keys]


def way(found: dict[str, float], column: str = "modelless") -> float:
    """How much of the way from GDSF to offline a column goes."""
    return (found["gdsf"] - found[column]) / (found["gdsf"] - found["offline"])


def line(kind: str, how: str, share: float, rows: Sequence[dict[str, float]]) -> str:
    """Medians over the seeds, as a row of a Markdown table."""
    cells = [kind, how, f"{share:.0%}", f"{median(r['lru'] for r in rows):,.0f}"]
    for column in COLUMNS[1:]:
        known = [r[column] / r["lru"] for r in rows if column in r]
        cells.append(f"{median(known):.1%}" if known else "")
    cells.append(f"{median(way(r) for r in rows):.2f}")
    known = [way(r, "known rates") for r in rows if "known rates" in r]
    cells.append(f"{median(known):.2f}" if known else "")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed instead of three")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these workloads")
    parser.add_argument("--costs", action="append", choices=COSTS, help="only these costs")
    parser.add_argument("--variants", type=int, default=100)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--per-s", type=float, default=2.0)
    asked = parser.parse_args()
    seeds = range(1 if asked.quick else 3)
    lines = list(product(asked.kind or KINDS, asked.costs or COSTS, SHARES))
    cases = [(*each, seed) for each in lines for seed in seeds]
    work = partial(row, variants=asked.variants, queries=asked.queries, per_s=asked.per_s)
    head = ["workload", "costs", "memory", "LRU, s", *COLUMNS[1:], "half way", "known rates"]
    print("| " + " | ".join(head) + " |\n" + "|---|---|--:|" + "--:|" * (len(head) - 3))
    found = []
    with ProcessPoolExecutor() as pool:
        results = pool.map(work, cases)
        for each in lines:
            rows = [next(results) for _ in seeds]
            found.append(rows)
            print(line(*each, rows), flush=True)
    print("\n" + verdict(found))


def verdict(found: Sequence[Sequence[dict[str, float]]]) -> str:
    """How many lines reach the goals, each by its median."""
    to_lru = [median(r["modelless"] / r["lru"] for r in rows) for rows in found]
    least = [median(r["offline"] / r["lru"] for r in rows) for rows in found]
    to_gdsf = [median(r["modelless"] / r["gdsf"] for r in rows) for rows in found]
    ways = [median(map(way, rows)) for rows in found]
    known = [
        median(way(r, "known rates") for r in rows) for rows in found if "known rates" in rows[0]
    ]
    return "\n".join(
        [
            f"{len(found)} lines, median over {len(found[0])} seeds each:",
            f"- at least 20 % below LRU: {sum(x <= 0.8 for x in to_lru)}"
            f" (offline: {sum(x <= 0.8 for x in least)})",
            f"- not above GDSF: {sum(x <= 1.0 for x in to_gdsf)};"
            f" at worst {max(to_gdsf):.3f} of it",
            f"- half of the way: {sum(x >= 0.5 for x in ways)}, median {median(ways):.2f}",
            f"- known rates, half of the way: {sum(x >= 0.5 for x in known)} of {len(known)}"
            + (f", median {median(known):.2f}" if known else ""),
        ]
    )


if __name__ == "__main__":
    main()

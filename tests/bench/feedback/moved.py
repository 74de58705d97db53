"""How soon it is told that answers are divided among the classes otherwise, and how often wrongly.

    python -m tests.bench.feedback.moved [--days 7] [--runs 40] [--lives 100]   # 0 runs: no delays

A variant that is asked evenly, looked at each ten seconds; the first hour has the first answers.
Delays are from the change on, which comes three to four hours after these, within a span, in
rows that were answered until it is told.
"False" are those lives in which a change was told although there was none: of single answers, and
of answers that come 20 of a class at a time, as from a film; beside it what would be without
counting how they come in clumps. They are looked at each five minutes.
"""

import argparse
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.feedback.answers import SPAN_S, Answers

EVERY_S = 10.0
LOOK_S = 300.0
HOURS_BEFORE, HOURS_AFTER = 4, 24
Shares = NDArray[np.float64]


class Change(NamedTuple):
    """What becomes of the shares of classes."""

    name: str
    before: Shares
    after: Shares


def zipf(classes: int) -> Shares:
    """Few frequent classes, many rare ones."""
    weights = 1.0 / np.arange(1, classes + 1)
    return np.asarray(weights / weights.sum())


def toward(shares: Shares, cell: int, part: float) -> Shares:
    """So large a part of all answers falls into one cell in place of where it fell."""
    moved = shares * (1 - part / (1 - shares[cell]))
    moved[cell] = shares[cell] + part
    return np.asarray(moved)


def changes() -> list[Change]:
    ten, many = np.full(10, 0.1), zipf(256)
    found = [
        Change(f"10 classes: {100 * part:.0f} % go to one", ten, toward(ten, 3, part))
        for part in (0.05, 0.1, 0.2, 0.4)
    ]
    for first, then in ((0.02, 0.08), (0.5, 0.6), (0.5, 0.7)):
        before, after = np.array([1 - first, first]), np.array([1 - then, then])
        found.append(Change(f"2 classes, {100 * first:.0f} to {100 * then:.0f} %", before, after))
    spread = ten * np.where(np.arange(10) % 2, 1.2, 0.8)
    found.append(Change("10 classes: each by a fifth", ten, spread))
    found.append(Change("256 classes: 10 % go to a rare one", many, toward(many, 200, 0.1)))
    found.append(Change("256 classes: half as frequent as the next", many, many[::-1].copy()))
    return found


def rows_until_found(change: Change, per_s: float, seed: int) -> int | None:
    """Rows from the change until it is told; None where it is not, within a day."""
    rng, answers = np.random.default_rng(seed), Answers(len(change.before))
    rows, now_s = round(per_s * EVERY_S), 0.0
    until_s = (HOURS_BEFORE + rng.random()) * 3_600
    end_s = until_s + HOURS_AFTER * 3_600
    while now_s < end_s:
        shares = change.before if now_s < until_s else change.after
        answers.add(rng.multinomial(rows, shares), now_s)
        if answers.judge(now_s):
            return None if now_s < until_s else round((now_s - until_s + EVERY_S) * per_s)
        now_s += EVERY_S
    return None


def false_lives(
    shares: Shares, per_s: float, clump: int, days: float, runs: int, *, single: bool = False
) -> int:
    """In how many lives a change was told that there was not.

    Args:
        single: answers count as if each came by itself.
    """
    found = 0
    for seed in range(runs):
        rng, answers = np.random.default_rng(seed), Answers(len(shares))
        now_s, clumps = 0.0, max(1, round(per_s * LOOK_S / clump))
        while now_s < days * 86_400:
            answers.add(clump * rng.multinomial(clumps, shares), now_s)
            if single:
                answers._dispersion = 1.0
            if answers.judge(now_s):
                found += 1
                break
            now_s += LOOK_S
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--lives", type=int, default=100)
    given = parser.parse_args()
    print(f"spans of {SPAN_S:.0f} s; delays of {given.runs} runs each")
    for per_s in (1.0, 20.0) if given.runs else ():
        for change in changes():
            found = [rows_until_found(change, per_s, seed) for seed in range(given.runs)]
            delays = sorted(each for each in found if each is not None)
            moved = float(np.abs(change.after - change.before).sum()) / 2
            said = f"{100 * len(delays) / given.runs:.0f} %"
            if delays:
                said += (
                    f", median {median(delays):,.0f}, 9 of 10 {delays[int(0.9 * len(delays))]:,}"
                )
            print(f"{per_s:g} rows/s, {change.name} ({100 * moved:.0f} %): {said}", flush=True)
    for name, shares in (("10 even", np.full(10, 0.1)), ("2, 2 %", np.array([0.98, 0.02])),
                         ("256 by Zipf", zipf(256))):  # fmt: skip
        for clump in (1, 20):
            lives = [
                false_lives(shares, 2.0, clump, given.days, given.lives, single=single)
                for single in (False, True)
            ]
            print(
                f"false, classes {name}, {clump} at a time: {lives[0]} of {given.lives} lives of"
                f" {given.days:g} days; counted as single ones {lives[1]}",
                flush=True,
            )


if __name__ == "__main__":
    main()

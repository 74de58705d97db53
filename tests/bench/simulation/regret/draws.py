"""Which of the drawn workloads a bench is of: its options ``--draws`` and ``--seed``."""

import argparse

from tests.bench.simulation.ablation import SETS


def draws_parser(description: str | None, numbers: str = "") -> argparse.ArgumentParser:
    """Takes the numbers of draws and a seed; without ``numbers`` the draws are half of all."""
    parser = argparse.ArgumentParser(description=description)
    half = ",".join(name.removeprefix("draw-") for name in SETS["half"])
    parser.add_argument("--draws", default=numbers or half, help="numbers, by commas")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def draws_of(given: argparse.Namespace) -> list[int]:
    """The numbers that were asked for."""
    return [int(each) for each in given.draws.split(",")]

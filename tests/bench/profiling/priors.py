"""The numbers of ``profiler.sampling.prior``: the likeliest on grids that were measured in full.

Run with ``python -m tests.bench.profiling.priors tests/cases/grids/two-cores.json`` from the
repository's root; takes about two minutes for each fit. The deviations of all parts and bends, the
bends' range, the mean and a noise for each model are found by gradient steps on the likelihood of
all measurements, around numbers of the curves that are found along with them. Each may move away
from where it starts only as far as the measurements insist: its logarithm has a prior of sd 1.

``--leave-out`` fits as often as there are models, without one each time, and lets the search run
on that one: what the numbers are worth for models that they were not found on.
"""

import argparse
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from profiler.sampling import prior
from profiler.sampling.prior import Sited, curves_of, same_label
from tests.bench.profiling import grids
from tests.bench.profiling.grids import Grid
from tests.bench.profiling.search import Outcome, head, line, replayed

STEPS, RATE = 90, 0.1
RELINEARISED = 3
"""Steps after which the curves' numbers are found anew."""
START_SD = (0.3, 0.3, 0.15, 0.1)
START_BEND, START_NOISE, START_DOUBLINGS = 0.05, 0.05, 3.0
START_MEAN = (-3.0, -4.0, 0.3, 0.1)
LEAST_NOISE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    parts: tuple[tuple[float, ...], ...]
    bends: tuple[float, ...]
    doublings: float
    mean: tuple[float, ...]


class Fit:
    """All measurements of some models, and what is thought of them so far."""

    def __init__(self, truths: Mapping[str, Grid]) -> None:
        sited: list[Sited] = [(name, each) for name, grid in truths.items() for each in grid]
        self._logs = _tensor([np.log(truths[name][each].p50_ms) for name, each in sited])
        curves = curves_of(sited)
        index = {curve: at for at, curve in enumerate(curves)}
        self._curve = torch.tensor([index[name, each.kind] for name, each in sited])
        self._log_threads = _tensor([np.log(each.threads) for _, each in sited])
        self._log_batch = _tensor([np.log(each.batch_size) for _, each in sited])
        doublings = self._log_batch / np.log(2)
        self._apart = (doublings[:, None] - doublings[None, :]).abs()
        self._parts = [_same([part.label(*curve) for curve in curves]) for part in prior.PARTS]
        self._bends = [
            _same([bend.label(name, each.kind, each.threads) for name, each in sited])
            for bend in prior.BENDS
        ]
        models = list(truths)
        self._model = torch.tensor([models.index(name) for name, _ in sited])
        count = len(prior.PARTS)
        start = [*START_SD * count, *[START_BEND] * len(prior.BENDS), START_DOUBLINGS]
        self._start = _tensor(np.log([*start, *[START_NOISE] * len(models)]))
        self._free = self._start.clone().requires_grad_()
        self._mean = _tensor(START_MEAN).requires_grad_()
        self._numbers = _tensor(START_MEAN).repeat(len(curves), 1)
        self._numbers[:, :2] += (self._logs - self._formula(self._numbers)).mean()

    def run(self) -> Found:
        steps = torch.optim.Adam([self._free, self._mean], lr=RATE)
        for step in range(STEPS):
            parts, covariance = self._covariances()
            slopes = self._slopes()
            left = self._left(slopes)
            lower = torch.linalg.cholesky(covariance)
            solved = torch.cholesky_solve(left[:, None], lower)[:, 0]
            surprise = 0.5 * left @ solved + lower.diagonal().log().sum()
            surprise = surprise + 0.5 * ((self._free - self._start) ** 2).sum()
            surprise.backward()
            steps.step()
            steps.zero_grad()
            if step % RELINEARISED == 0:
                self._move(parts.detach(), slopes, solved.detach())
        sd = self._free.detach().exp().tolist()
        count = 4 * len(prior.PARTS)
        return Found(
            parts=tuple(tuple(sd[at : at + 4]) for at in range(0, count, 4)),
            bends=tuple(sd[count : count + len(prior.BENDS)]),
            doublings=sd[count + len(prior.BENDS)],
            mean=tuple(self._mean.detach().tolist()),
        )

    def _formula(self, numbers: Any) -> Any:
        overhead, work, gain, cost = numbers[self._curve].T
        called = overhead + cost * self._log_threads
        return torch.logaddexp(called, work + self._log_batch - gain * self._log_threads)

    def _slopes(self) -> Any:
        overhead, work, gain, cost = self._numbers[self._curve].T
        called = overhead + cost * self._log_threads
        share = torch.sigmoid(called - work - self._log_batch + gain * self._log_threads)
        by_threads = self._log_threads
        return torch.stack([share, 1 - share, (share - 1) * by_threads, share * by_threads], 1)

    def _left(self, slopes: Any) -> Any:
        """What the mean, linear around the numbers, leaves of the measurements."""
        moved = ((self._mean - self._numbers)[self._curve] * slopes).sum(1)
        return self._logs - self._formula(self._numbers) - moved

    def _covariances(self) -> tuple[Any, Any]:
        """Of the curves' numbers, ``(4, curves, curves)``, and of all measurements."""
        sd, count = self._free.exp(), 4 * len(prior.PARTS)
        by_part = sd[:count].reshape(-1, 4) ** 2
        parts = torch.stack(
            [
                sum(one[number] * same for one, same in zip(by_part, self._parts, strict=True))
                for number in range(4)
            ]
        )
        slopes, at = self._slopes(), self._curve
        whole = sum(
            slopes[:, number, None] * slopes[None, :, number] * parts[number][at][:, at]
            for number in range(4)
        )
        of_bends, rest = sd[count:].split([len(prior.BENDS), len(sd) - count - len(prior.BENDS)])
        bends = sum(one**2 * same for one, same in zip(of_bends, self._bends, strict=True))
        noise = rest[1:][self._model] + LEAST_NOISE
        return parts, whole + bends * torch.exp(-self._apart / rest[0]) + torch.diag(noise**2)

    def _move(self, parts: Any, slopes: Any, solved: Any) -> None:
        """The numbers to what is expected of them now, by no more than a half."""
        pulled = torch.zeros_like(self._numbers)
        pulled.index_add_(0, self._curve, slopes * solved[:, None])
        found = self._mean.detach() + torch.einsum("ncd,dn->cn", parts, pulled)
        self._numbers = self._numbers + (found - self._numbers).clamp(-0.5, 0.5)


@contextmanager
def in_use(found: Found) -> Iterator[None]:
    """The search expects what was found."""
    kept = prior.PARTS, prior.BENDS, prior.BEND_DOUBLINGS, prior.MEAN
    try:
        prior.PARTS = tuple(
            replace(part, sd=(sd[0], sd[1], sd[2], sd[3]))
            for part, sd in zip(prior.PARTS, found.parts, strict=True)
        )
        prior.BENDS = tuple(
            replace(bend, sd=sd) for bend, sd in zip(prior.BENDS, found.bends, strict=True)
        )
        prior.BEND_DOUBLINGS = found.doublings
        prior.MEAN = (found.mean[0], found.mean[1], found.mean[2], found.mean[3])
        yield
    finally:
        prior.PARTS, prior.BENDS, prior.BEND_DOUBLINGS, prior.MEAN = kept


def _same(labels: Sequence[Hashable]) -> Any:
    return torch.from_numpy(same_label(labels))


def _tensor(values: Any) -> Any:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def leave_out(truths: Mapping[str, Grid]) -> None:
    head("Each model, with numbers found on the others")
    outcomes: dict[str, Outcome] = {}
    for name, truth in truths.items():
        found = Fit({other: grid for other, grid in truths.items() if other != name}).run()
        with in_use(found):
            outcomes[name] = replayed(truth, {})[1]
        line(name, [outcomes[name]])
    line("all", list(outcomes.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("grids", type=Path, nargs="+", metavar="FILE", help="recorded grids")
    parser.add_argument("--leave-out", action="store_true")
    arguments = parser.parse_args()
    truths: dict[str, Grid] = {}
    for path in arguments.grids:
        truths |= grids.read(path)
    if arguments.leave_out:
        leave_out(truths)
        return
    found = Fit(truths).run()
    print("parts:", *(" ".join(f"{sd:.3f}" for sd in part) for part in found.parts), sep="\n  ")
    print("bends:", " ".join(f"{sd:.3f}" for sd in found.bends))
    print(f"doublings: {found.doublings:.1f}")
    print("mean:", " ".join(f"{one:.2f}" for one in found.mean))


if __name__ == "__main__":
    main()

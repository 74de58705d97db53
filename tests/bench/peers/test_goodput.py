from collections import Counter

from tests.bench.peers.goodput import goodput


def test_one_disturbed_run_does_not_decide_a_rate() -> None:
    """Every rate of at most 100 holds, but the first run of each is disturbed."""
    asked: Counter[float] = Counter()

    def share_at(rate: float, seed: int) -> float:
        asked[rate] += 1
        return 0.95 if rate > 100.0 or asked[rate] == 1 else 1.0

    assert 96.0 <= goodput(share_at, 150.0) <= 100.0
    assert set(asked.values()) == {2, 3}


def test_one_lucky_run_does_not_either() -> None:
    """No rate holds, but the first run of each does."""
    asked: Counter[float] = Counter()

    def share_at(rate: float, seed: int) -> float:
        asked[rate] += 1
        return 1.0 if asked[rate] == 1 else 0.5

    assert goodput(share_at, 150.0) == 0.0


def test_runs_have_arrivals_of_their_own() -> None:
    seeds: list[int] = []

    def share_at(rate: float, seed: int) -> float:
        seeds.append(seed)
        return float(rate < 70.0)

    assert goodput(share_at, 100.0) > 65.0
    assert len(set(seeds)) == len(seeds)


def test_nothing_is_asked_of_a_server_that_answers_nothing() -> None:
    assert goodput(lambda rate, seed: 1.0, 0.0) == 0.0

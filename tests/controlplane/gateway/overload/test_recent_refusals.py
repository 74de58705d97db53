"""Recent refusals: whom a worker refuses as well, how long, and who is told when to come back."""

from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, cast

import orjson
import pytest

from controlplane.gateway.overload.recent_refusals import MOST_MS, RecentRefusals
from controlplane.gateway.overload.retry_advice import RetryAdvice
from controlplane.gateway.query.query_path import QueryPath
from planner.batching.protocol import Verdict
from planner.selection.routes import EMPTY
from planner.types import DEFAULT_PRIORITY, Query, Refusal, RefusalCode
from tests.controlplane.gateway.test_plan_following import Refusing
from tests.controlplane.serving import until
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    snapshot,
    task,
    variant,
    worker,
)
from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.types import ReplyCode

ONE = WorkerId("w1")
LATENCY_MS = 30_000.0


class Path:
    """A query path over workers that answer at once, as they are told to; its clock stands."""

    def __init__(self, *codes: ReplyCode) -> None:
        self.now_ms = NOW_MS
        self.workers = {WorkerId(f"w{at + 1}"): Refusing(code) for at, code in enumerate(codes)}
        self.answers: list[tuple[int, Any]] = []
        self.waits_s: list[float | None] = []
        one = catalog([variant("a")], [profile("a")])
        seen = snapshot(one, *((worker(name), {key("a")}) for name in self.workers))
        self.candidate = seen.tasks[DIGITS].by_cost[0]
        table = self.candidate.table
        self.one_more_ms = table.ms[-1] / table.max_batch
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: self.now_ms)
        self.path.update(
            snapshot=seen,
            routes=EMPTY,
            tasks={DIGITS: task()},
            connections=cast(dict[WorkerId, WorkerConnection], self.workers),
        )

    def ask(
        self,
        inputs: Any = None,
        told_ms: float = 0.0,
        latency_ms: float = LATENCY_MS,
        **fields: Any,
    ) -> None:
        row = [[0.25] * 64] if inputs is None else inputs
        slo = {"latency_ms": latency_ms}
        body = orjson.dumps({"task": DIGITS, "inputs": row, "slo": slo, **fields})
        body = body.replace(b"[", b"[" + b" " * 2_000, 1)  # long enough to be skimmed
        self.path.handle_v1(body, self.now_ms, self.answered, None, told_ms)

    def answered(self, status: int, body: bytes, headers: bytes) -> None:
        found = orjson.loads(body)
        self.waits_s.append(found.pop("retry_after_s", None))
        found.pop("request_id", None)
        self.answers.append((status, found))

    @property
    def asked(self) -> int:
        return sum(one.asked for one in self.workers.values())


async def test_what_a_worker_has_just_refused_it_is_not_asked_again() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask()
    assert path.asked == 1
    assert path.answers[0] == path.answers[1]
    assert path.answers[0][0] == 503


async def test_whom_a_worker_holds_back_for_others_says_nothing_of_the_next() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.workers[ONE].said = Verdict.OVER_SHARE.value
    path.ask()
    path.ask()
    assert path.asked == 2
    low = (False, False, 200)
    assert not path.path.lately.is_before(low, ONE, NOW_MS)
    path.workers[ONE].said = Verdict.WOULD_BE_LATE.value
    path.ask()
    assert path.path.lately.is_before(low, ONE, NOW_MS)


async def test_all_that_is_asked_is_counted_once_as_demand_and_as_an_answer() -> None:
    path = Path(ReplyCode.OVERLOADED)
    for _ in range(5):
        path.ask([[0.25] * 64] * 3)
    assert path.path.demand.take() == {(DIGITS, LATENCY_MS, None, None): 15}
    assert path.path.counters.task(DIGITS).errors == {"OVERLOADED": 5}
    assert (len(path.answers), path.path.counters.in_flight) == (5, 0)


async def test_every_refusal_narrows_the_window_whether_a_worker_was_asked_or_not() -> None:
    path = Path(ReplyCode.OVERLOADED, ReplyCode.OVERLOADED)
    windows = [path.path.congestion.at(NOW_MS)]
    for _ in range(3):
        path.ask()
        windows.append(path.path.congestion.at(NOW_MS))
    assert path.asked == 2
    lost = [after / before for before, after in pairwise(windows)]
    assert lost == [pytest.approx(lost[0])] * 3


async def test_a_worker_that_may_take_it_is_asked() -> None:
    path = Path(ReplyCode.OVERLOADED, ReplyCode.OK)
    for _ in range(4):
        path.ask()
    assert [status for status, _ in path.answers] == [200] * 4


async def test_while_none_is_refused_a_wrong_body_is_told_what_is_wrong() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask([[1.0, 2.0]])
    path.ask()
    path.ask([[1.0, 2.0]])
    assert [status for status, _ in path.answers] == [400, 503, 503]


async def test_best_effort_is_not_turned_away() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask(best_effort=True)
    assert path.asked == 2


async def test_after_a_while_a_body_is_read_again() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.now_ms += path.one_more_ms
    path.ask()
    assert path.asked == 2


# -- who comes back sooner than told --------------------------------------------------------------


async def test_who_comes_back_sooner_than_told_is_refused_when_that_time_has_come() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask()
    path.ask(told_ms=NOW_MS + 30.0)
    path.ask()
    assert len(path.answers) == 2
    await until(lambda: len(path.answers) == 3)
    assert path.answers[2] == path.answers[0]
    assert path.path.demand.take() == {(DIGITS, LATENCY_MS, None, None): 3}
    assert path.path.counters.task(DIGITS).errors == {"OVERLOADED": 3}


async def test_a_refusal_is_held_no_longer_than_an_answer_is_waited_for() -> None:
    path = Path(ReplyCode.OVERLOADED)
    path.ask(latency_ms=20.0)
    path.ask(latency_ms=20.0, told_ms=NOW_MS + 3_600_000.0)
    await until(lambda: len(path.answers) == 2)


async def test_whom_there_is_room_for_is_answered_however_soon_he_comes() -> None:
    path = Path(ReplyCode.OVERLOADED, ReplyCode.OK)
    for _ in range(3):
        path.ask(told_ms=NOW_MS + 60_000.0)
    assert [status for status, _ in path.answers] == [200] * 3


async def test_a_refusal_says_when_to_come_back() -> None:
    path = Path(ReplyCode.OVERLOADED)
    for _ in range(20):
        path.ask()
    waits_s = [wait_s for wait_s in path.waits_s if wait_s is not None]
    assert len(waits_s) == 20
    assert len(set(waits_s)) > 10  # those refused together do not come back together
    assert all(1_000 * wait_s == pytest.approx(round(1_000 * wait_s)) for wait_s in waits_s)
    assert waits_s[-1] > 5 * waits_s[0] > 0.0  # twenty are refused by then, and none was answered


def test_a_wait_is_as_long_as_all_that_were_refused_take_their_turns() -> None:
    random = Random(1)
    for refused in (1, 4, 9):
        waits_ms = []
        for _ in range(100):
            advice = RetryAdvice(random)
            for _ in range(10):
                advice.answered(1_000.0)
            for _ in range(10 * refused):
                wait_ms = advice.wait_ms(20.0, 1_000.0)
            waits_ms.append(wait_ms)
        least_ms = 20.0 * (1 + refused)
        assert least_ms <= min(waits_ms) < max(waits_ms) <= 1.5 * least_ms
        assert max(waits_ms) > 1.4 * least_ms


def test_what_was_long_ago_counts_no_more_and_a_wait_is_bounded() -> None:
    advice = RetryAdvice(Random(1))
    for _ in range(10_000):
        assert 5.0 <= advice.wait_ms(50.0, 0.0) <= 1_500.0
    assert advice.wait_ms(50.0, 60_000.0) <= 150.0
    assert advice.wait_ms(-1.0, 120_000.0) <= 15.0


def test_who_is_due_later_or_has_fewer_rows_may_be_taken() -> None:
    path = Path(ReplyCode.OK)
    candidate, more_ms = path.candidate, path.one_more_ms
    refusals = RecentRefusals()

    class Asked(NamedTuple):
        rows: int
        latency_ms: float
        after_ms: float

    def expected(asked: Asked) -> str | None:
        now_ms = NOW_MS + asked.after_ms
        query = Query(DIGITS, asked.rows, now_ms, asked.latency_ms)
        found = refusals.expected(ONE, candidate, query, now_ms, now_ms)
        assert found is None or now_ms < found.until_ms <= NOW_MS + asked.rows * more_ms
        assert found is None or now_ms < found.before_ms
        return found and found.why

    assert expected(Asked(2, 50.0, 0.0)) is None
    refusals.add(ONE, candidate, Query(DIGITS, 2, NOW_MS, 50.0), "full", NOW_MS, 50.0)
    assert expected(Asked(2, 50.0, more_ms / 2)) == "full"
    assert expected(Asked(2, 20.0, more_ms / 2)) == "full"
    assert expected(Asked(3, 50.0, 0.0)) == "full"
    assert expected(Asked(1, 50.0, 0.0)) is None
    assert expected(Asked(2, 50.0 + 2 * more_ms, 0.0)) is None
    assert expected(Asked(2, 50.0, 2 * more_ms)) is None
    refusals.keep(frozenset())
    assert expected(Asked(2, 50.0, 0.0)) is None


def test_room_for_one_more_goes_to_the_next_that_is_sent_there() -> None:
    candidate = Path(ReplyCode.OK).candidate
    latency_ms = 2 * candidate.table.ms[-1]
    more_ms = candidate.table.ms[-1] / candidate.table.max_batch
    refusals = RecentRefusals()
    busy_ms = NOW_MS + 0.8 * latency_ms
    refused = Query(DIGITS, 1, NOW_MS, latency_ms)
    refusals.add(ONE, candidate, refused, "full", NOW_MS, NOW_MS + latency_ms - busy_ms)

    def is_refused(after_ms: float, busy_ms: float) -> bool:
        now_ms = NOW_MS + after_ms
        query = Query(DIGITS, 1, now_ms, latency_ms)
        found = refusals.expected(ONE, candidate, query, now_ms, busy_ms)
        assert found is None or now_ms < found.until_ms <= now_ms + more_ms
        assert found is None or query.received_ms < found.before_ms
        return found is not None

    later_ms = 1.5 * more_ms
    assert not is_refused(later_ms, busy_ms)  # there is room for one more by now
    assert is_refused(later_ms, busy_ms + more_ms)  # which one more has got
    assert not is_refused(2.5 * more_ms, busy_ms + more_ms)
    assert not is_refused(later_ms, busy_ms - more_ms)  # it was quicker than it expected
    assert not is_refused(later_ms, NOW_MS)  # nothing waits there
    # What a queue was like says nothing of what it is like long after.
    assert is_refused(0.2 * latency_ms, busy_ms + 0.3 * latency_ms)
    assert not is_refused(0.3 * latency_ms, busy_ms + 0.7 * latency_ms)


def test_every_query_that_is_taken_asks_for_a_little_less_of_the_next() -> None:
    candidate = Path(ReplyCode.OK).candidate
    latency_ms = 2 * candidate.table.ms[-1]
    more_ms = candidate.table.ms[-1] / candidate.table.max_batch
    refusals = RecentRefusals()
    query = Query(DIGITS, 1, NOW_MS, latency_ms)
    refusals.add(ONE, candidate, query, "full", NOW_MS, 5 * more_ms)

    def limit_ms(now_ms: float) -> float:
        """The least slack, behind the queue, of a query that is sent."""
        for at in range(100):
            busy_ms = now_ms + latency_ms - at * more_ms / 10
            query = Query(DIGITS, 1, now_ms, latency_ms)
            if refusals.expected(ONE, candidate, query, now_ms, busy_ms) is None:
                return at * more_ms / 10
        raise AssertionError

    now_ms = NOW_MS + 1.5 * more_ms
    assert limit_ms(now_ms) == pytest.approx(6 * more_ms)
    refusals.took(ONE, candidate, query, 6 * more_ms, now_ms)
    assert limit_ms(now_ms) == pytest.approx(5.9 * more_ms)
    refusals.took(ONE, candidate, query, 12 * more_ms, now_ms)  # it had far more
    assert limit_ms(now_ms) == pytest.approx(5.9 * more_ms)
    # It stays known for as long as it goes on like that, and no longer.
    heard_ms = NOW_MS + 0.4 * latency_ms
    refusals.took(ONE, candidate, query, 6 * more_ms, min(heard_ms, NOW_MS + MOST_MS - 1.0))
    assert limit_ms(NOW_MS + 0.6 * min(latency_ms, 2 * MOST_MS)) == pytest.approx(5.8 * more_ms)
    refusals.took(ONE, candidate, query, 6 * more_ms, NOW_MS + 10 * latency_ms)
    assert limit_ms(NOW_MS + 10 * latency_ms) == 0.0


@pytest.mark.parametrize(
    ("codes", "sheds"),
    [
        ((ReplyCode.OVERLOADED, ReplyCode.OVERLOADED), True),
        ((ReplyCode.OVERLOADED, ReplyCode.OK), False),
    ],
)
async def test_what_costs_more_is_shed_after_a_query_that_both_workers_refused(
    codes: tuple[ReplyCode, ...], sheds: bool
) -> None:
    path = Path(*codes)
    for _ in range(3):
        path.ask()
    assert sheds_for(path) == sheds


def sheds_for(path: Path) -> bool:
    """Whether what costs more than others would be refused now."""
    shedding = path.path.congestion.shedding
    assert not shedding.sheds(1.0, DEFAULT_PRIORITY, NOW_MS)
    return shedding.sheds(9.0, DEFAULT_PRIORITY, NOW_MS)


@pytest.mark.parametrize("held_back", [0, 1])
async def test_nothing_is_shed_for_whom_a_worker_holds_back(held_back: int) -> None:
    path = Path(ReplyCode.OVERLOADED, ReplyCode.OVERLOADED)
    list(path.workers.values())[held_back].said = Verdict.OVER_SHARE.value
    path.ask()
    assert path.asked == 2
    assert not sheds_for(path)


@pytest.mark.parametrize(("over", "sheds"), [(True, False), (False, True)])
async def test_nothing_is_shed_for_a_client_above_its_share(over: bool, sheds: bool) -> None:
    path = Path(ReplyCode.OVERLOADED, ReplyCode.OVERLOADED)
    path.path.standing = lambda query, now_ms: (over, False, query.priority)  # type: ignore[method-assign]
    for _ in range(3):  # by its workers, and before they are asked
        path.ask()
    assert sheds_for(path) == sheds


async def test_no_room_is_kept_for_what_was_shed() -> None:
    low = (False, False, 200)
    for shed, kept in ((True, False), (False, True)):
        path = Path(ReplyCode.OK)
        refusal = Refusal(code=RefusalCode.OVERLOADED, message="no", shed=shed)
        path.path.choose = lambda *_, refusal=refusal: refusal  # type: ignore[method-assign]
        for _ in range(2):  # after its body was read, and before
            path.ask()
            assert path.path.lately.is_before(low, ONE, NOW_MS) == kept
        assert [status for status, _ in path.answers] == [503, 503]

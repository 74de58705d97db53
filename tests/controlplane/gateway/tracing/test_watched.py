"""Which queries are traced."""

from typing import Any

import pytest

from controlplane.gateway.counting.client_counters import ClientCounters
from controlplane.gateway.query.departures import Counting, innermost
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.tracing.ended import Ended
from controlplane.gateway.tracing.watched import (
    FAILURES_AT_ONCE,
    LONGEST_STATE,
    MOST_AT_ONCE,
    MOST_PER_S,
    Traces,
    Watched,
)

ID, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"
SAMPLED = b"00-" + ID + b"-" + SPAN + b"-01"


class Watching:
    """Traces with a clock and draws that a test says."""

    def __init__(self, share: float = 0.0) -> None:
        self.now_ms = 1_000.0
        self.draws = 0.5
        self.took: list[Ended] = []
        self.answers: list[tuple[int, bytes, bytes]] = []
        self.dropped = 0
        self.traces = Traces(
            share, lambda: self.now_ms, self.took.append, self.drop, lambda: self.draws
        )

    def drop(self) -> None:
        self.dropped += 1

    def ask(
        self,
        parent: bytes | None = None,
        state: bytes | None = None,
        *,
        status: int = 200,
        made: ReplyMetadata | None = None,
    ) -> list[Ended]:
        """What is traced of a query that ends so."""
        respond = self.traces.watch(self.respond, "/v1/query", 990.0, parent, state)
        if isinstance(respond, Watched):
            respond.made = made
        before = len(self.took)
        respond(status, b"{}", b"x-request-id: 7\r\n")
        return self.took[before:]

    def respond(self, *answer: Any) -> None:
        self.answers.append(answer)


def made(*, met: bool) -> ReplyMetadata:
    return ReplyMetadata("a", "m-v1", "w1", 1, 0.5, 2.0, 0.9, 0.01, met)


def test_one_that_its_sender_traces_is_traced_in_its_trace() -> None:
    [ended] = Watching().ask(SAMPLED, b"vendor=1")
    assert (ended.asked.parent, ended.asked.state) == (SAMPLED, b"vendor=1")
    assert (ended.status, ended.request_id, ended.ended_ms) == (200, "7", 1_000.0)


def test_one_that_its_sender_does_not_trace_is_not_even_when_it_fails() -> None:
    watching = Watching(share=1.0)
    assert not watching.ask(SAMPLED[:-1] + b"0", status=503)
    assert len(watching.answers) == 1


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00",
        SAMPLED.upper(),
        SAMPLED[:-1],
        SAMPLED + b"0",
        SAMPLED + b"-more",
        b"ff" + SAMPLED[2:],
        b"00-" + b"0" * 32 + b"-" + SPAN + b"-01",
        b"00-" + ID + b"-" + b"0" * 16 + b"-01",
        SAMPLED.replace(b"-", b"_"),
    ],
)
def test_what_cannot_be_read_counts_as_nothing_said(parent: bytes) -> None:
    assert not Watching().ask(parent)
    [ended] = Watching(share=1.0).ask(parent)
    assert ended.asked.parent is None


def test_a_later_version_may_say_more() -> None:
    [ended] = Watching().ask(b"01" + SAMPLED[2:] + b"-more")
    assert ended.asked.parent == b"01" + SAMPLED[2:] + b"-more"


def test_a_long_state_is_not_passed_on() -> None:
    [ended] = Watching().ask(SAMPLED, b"a=" + b"1" * LONGEST_STATE)
    assert ended.asked.state is None


def test_of_those_that_say_nothing_the_share_is_traced() -> None:
    watching = Watching(share=0.4)
    assert not watching.ask()
    watching.draws = 0.3
    assert len(watching.ask()) == 1


@pytest.mark.parametrize("status", [500, 503, 504])
def test_what_fails_is_traced(status: int) -> None:
    assert len(Watching().ask(status=status)) == 1


def test_so_is_an_answer_that_does_not_meet_its_slo() -> None:
    assert len(Watching().ask(made=made(met=False))) == 1
    assert not Watching().ask(made=made(met=True))


@pytest.mark.parametrize("status", [400, 404, 422, 429])
def test_what_its_client_did_wrong_is_not(status: int) -> None:
    assert not Watching().ask(status=status)


def test_of_what_fails_a_few_each_second_are_traced() -> None:
    watching = Watching()
    for _ in range(100):
        watching.ask(status=503)
    assert len(watching.took) == FAILURES_AT_ONCE
    watching.now_ms += 500.0
    for _ in range(100):
        watching.ask(status=503)
    assert len(watching.took) == FAILURES_AT_ONCE + 5
    assert len(watching.answers) == 200
    assert len(watching.ask(SAMPLED, status=503)) == 1  # asked for, whatever else fails


def test_who_asks_for_every_trace_gets_so_many_each_second() -> None:
    watching = Watching()
    for _ in range(1_000):
        watching.ask(SAMPLED)
    assert (len(watching.took), watching.dropped) == (MOST_AT_ONCE, 1_000 - MOST_AT_ONCE)
    watching.now_ms += 100.0
    for _ in range(100):
        watching.ask(SAMPLED)
    assert len(watching.took) == MOST_AT_ONCE + MOST_PER_S / 10
    assert len(watching.answers) == 1_100


def test_of_an_answer_nothing_is_kept_that_its_client_sent() -> None:
    [ended] = Watching(share=1.0).ask()
    assert ended.error == b""
    [ended] = Watching(share=1.0).ask(status=400)
    assert ended.error == b"{}"


def test_who_asks_for_many_traces_keeps_no_failure_from_being_seen() -> None:
    watching = Watching()
    for _ in range(int(MOST_AT_ONCE)):
        watching.ask(SAMPLED)
    assert watching.ask(SAMPLED) == []
    assert watching.dropped == 1
    [ended] = watching.ask(status=504)
    assert ended.status == 504
    [ended] = watching.ask(SAMPLED, status=503)
    assert ended.asked.parent == SAMPLED
    assert watching.dropped == 1


def test_where_an_answer_goes_is_known_behind_all_that_it_passes() -> None:
    """By that the query of a client is found that has gone."""
    watching = Watching(share=1.0)
    watched = watching.traces.watch(watching.respond, "/v1/query", 990.0)
    assert isinstance(watched, Watched)
    assert innermost(watched) == watching.respond
    watched.respond = Counting(ClientCounters(), watched.respond)
    assert innermost(watched) == watching.respond
    assert innermost(Counting(ClientCounters(), watching.respond)) == watching.respond

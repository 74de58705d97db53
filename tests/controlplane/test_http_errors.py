"""The table of statuses, the body of every error, and the way back."""

from collections.abc import Iterator

import orjson
import pytest

from controlplane.http_errors import STATUS, error_body, error_headers, parse_error, status_of
from variants import errors
from variants.errors import (
    Alternative,
    Cold,
    Conflict,
    Internal,
    InvalidArtifact,
    ModellessError,
    Overloaded,
    SeveralMeant,
    SloInfeasible,
    StateUnavailable,
    Unauthenticated,
)

NEAREST = Alternative(
    variant="cnn-v1-onnx-fp32",
    accuracy=0.97,
    latency_ms=31.0,
    cost_usd_per_1k=0.001,
    reason="p95 31.0 ms > 20 ms",
)


def tree(base: type[ModellessError] = ModellessError) -> Iterator[type[ModellessError]]:
    """The errors that travel; the command line has one of its own that does not."""
    if base.__module__ == errors.__name__:
        yield base
        for error in base.__subclasses__():
            yield from tree(error)


def make(kind: type[ModellessError]) -> ModellessError:
    if issubclass(kind, Cold):
        return kind("loading", retry_after_s=2.5)
    if issubclass(kind, SloInfeasible):
        return kind("nothing fits", reasons={"cnn": "too slow"}, alternatives=[NEAREST])
    if issubclass(kind, SeveralMeant):
        return kind("which one?", choices={2: "mlp-v2 is retired", 3: "mlp-v3 is a canary"})
    return kind("a reason")


def test_the_table_has_every_code_of_the_tree_and_no_other() -> None:
    assert {error.code for error in tree()} == set(STATUS)
    assert errors.ModellessError in set(tree())


@pytest.mark.parametrize("kind", sorted(set(tree()), key=repr))
def test_an_error_survives_the_way_to_the_client(kind: type[ModellessError]) -> None:
    error = make(kind)
    again = parse_error(status_of(error), orjson.dumps(error_body(error, "r1")))
    assert again.request_id == "r1"

    assert (again.code, again.retryable) == (error.code, error.retryable)
    if error.code != "INTERNAL":
        assert error_body(again, "r1") == error_body(error, "r1")


def test_a_plain_body_is_exactly_this() -> None:
    assert error_body(Conflict("there is a version 3"), "r1") == {
        "error": "there is a version 3",
        "code": "CONFLICT",
        "retryable": False,
        "request_id": "r1",
    }


def test_an_infeasible_slo_carries_reasons_and_alternatives() -> None:
    error = SloInfeasible("no variant fits", reasons={"cnn": "slow"}, alternatives=[NEAREST])

    assert error_body(error, "r1") == {
        "error": "no variant fits",
        "code": "SLO_INFEASIBLE",
        "retryable": False,
        "request_id": "r1",
        "reasons": {"cnn": "slow"},
        "alternatives": [
            {
                "variant": "cnn-v1-onnx-fp32",
                "accuracy": 0.97,
                "latency_ms": 31.0,
                "cost_usd_per_1k": 0.001,
                "reason": "p95 31.0 ms > 20 ms",
                "energy_j": None,
            }
        ],
    }


def test_an_alternative_of_an_older_server_has_no_energy() -> None:
    body = error_body(SloInfeasible("no variant fits", alternatives=[NEAREST]), "r1")
    del body["alternatives"][0]["energy_j"]

    [again] = parse_error(422, orjson.dumps(body)).alternatives  # type: ignore[attr-defined]
    assert again == NEAREST


@pytest.mark.parametrize(("wait_s", "header"), [(0.01, "1"), (1.0, "1"), (1.01, "2"), (7.5, "8")])
def test_retry_after_is_whole_seconds_rounded_up(wait_s: float, header: str) -> None:
    error = Cold("loading", retry_after_s=wait_s)

    assert error_headers(error) == {"Retry-After": header}
    assert error_body(error, "r1")["retry_after_s"] == wait_s


def test_a_short_wait_is_told_in_milliseconds_as_well() -> None:
    error = Overloaded("full")
    assert error_headers(error) == {}
    error.retry_after_s = 0.0421
    assert error_headers(error) == {"Retry-After": "1", "Retry-After-Ms": "43"}


def test_an_unauthenticated_caller_is_told_the_scheme() -> None:
    assert error_headers(Unauthenticated("who?")) == {"WWW-Authenticate": "Bearer"}


@pytest.mark.parametrize(
    "error", [ValueError("secret path /x"), Internal("secret"), errors.RuntimeFailed("secret")]
)
def test_an_internal_error_shows_its_request_id_and_nothing_else(error: Exception) -> None:
    assert status_of(error) == 500
    assert error_body(error, "r1") == {
        "error": "internal error",
        "code": "INTERNAL",
        "retryable": False,
        "request_id": "r1",
    }


def test_that_a_model_gave_no_numbers_is_told() -> None:
    body = error_body(errors.NotFinite("not finite"), "r1")
    assert (body["error"], body["code"], body["retryable"]) == ("not finite", "INTERNAL", False)


def test_the_client_keeps_the_request_id_of_an_internal_error() -> None:
    again = parse_error(500, orjson.dumps(error_body(ValueError(), "r1")))

    assert again.message == "internal error (request r1)"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "INVALID_INPUT"),
        (404, "NOT_FOUND"),
        (500, "INTERNAL"),
        (502, "REPLICA_LOST"),
        (503, "OVERLOADED"),
    ],
)
def test_a_body_that_is_not_ours_gives_an_error_of_the_status(status: int, kind: str) -> None:
    again = parse_error(status, b"<html>Bad Gateway</html>")
    assert again.request_id == ""

    words = f"HTTP {status} without a reason of modelless: a proxy or another server answered"
    assert (again.code, again.message) == (kind, words)
    again = parse_error(status, b"", "http://127.0.0.1:8000")
    assert again.message == f"{words} at http://127.0.0.1:8000"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": 1}', b'{"code": "COLD"}', b"\xff"])
def test_broken_bodies_do_not_break_the_client(body: bytes) -> None:
    assert parse_error(500, body).code == "INTERNAL"


def test_an_artifact_error_is_an_input_error_on_the_wire() -> None:
    assert error_body(InvalidArtifact("no graph"), "r1")["code"] == "INVALID_INPUT"
    assert status_of(StateUnavailable("gone")) == status_of(Overloaded("full")) == 503

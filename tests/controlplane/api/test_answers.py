"""Answers that have changed, and the word that this is as it should be, over the control API."""

from typing import Any

import httpx
import pytest

from tests.controlplane.builders import DictLive
from variants.catalog.memory import MemoryCatalog

INT8, FP32 = "mlp-v1-onnx-int8", "mlp-v1-onnx-fp32"
SINCE_S = 1_800_000_000.25


def told(variant: str, since_s: float | None) -> dict[str, Any]:
    """What the control loop tells of a variant."""
    shift = {"classes": "3", "before": 0.1, "now": 0.3}
    return {
        "task": "digits", "variant": variant, "rows": 900, "first_rows": 2_100, "complete": True,
        "moved": 0.2, "changed": since_s is not None, "since_s": since_s, "shifts": [shift],
        "from_held_out": None, "differs": False, "differences": [],
    }  # fmt: skip


async def test_answers_are_listed_with_what_was_said_of_them(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    assert (await api.get("/v1/answers")).json() == {"answers": []}
    live.told = {"answers": [told(INT8, SINCE_S), told(FP32, None)]}
    accepted = await api.post("/v1/answers/digits/accept", json={"by": "ann", "why": "sale"})

    fp32, int8 = (await api.get("/v1/answers")).json()["answers"]

    assert fp32 == told(FP32, None) | {"accepted": None}
    said = {"at": accepted.json()["accepted_at"], "by": "ann", "why": "sale"}
    assert int8 == told(INT8, SINCE_S) | {"accepted": said}


async def test_a_change_is_accepted_kept_and_told(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.told = {"answers": [told(INT8, SINCE_S), told(FP32, None)]}

    reply = await api.post("/v1/answers/digits/accept", json={"by": "ann@b2", "why": "sale"})

    assert (reply.status_code, reply.json()["variants"]) == (200, [INT8])
    assert reply.json()["sentence"] == (
        "What is normal is learned anew, for 60 min and 2,000 rows at least."
    )
    [word] = catalog.accepted_answers()
    assert (word.variant, word.since_s, word.by, word.why) == (INT8, SINCE_S, "ann@b2", "sale")
    [event] = catalog.events(9)
    assert (event.kind, event.subject) == ("answers_accepted", f"digits/{INT8}")
    assert event.message == (
        "ann@b2 says that its answers are as they should be: sale; 20 % of them fell into other"
        " classes, as was found at 2027-01-15 08:00:00 UTC"
    )


async def test_only_what_is_named_is_accepted(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.told = {"answers": [told(INT8, SINCE_S), told(FP32, SINCE_S + 1)]}
    reply = await api.post("/v1/answers/digits/accept", json={"variants": [FP32]})
    assert reply.json()["variants"] == [FP32]
    assert [word.variant for word in catalog.accepted_answers()] == [FP32]
    [event] = catalog.events(9)
    assert event.message.startswith("an operator says that its answers are as they should be; 20 %")


@pytest.mark.parametrize(
    ("task", "body", "status", "code", "error"),
    [
        ("none", {}, 404, "TASK_NOT_FOUND", "'none'"),
        ("digits", {"variants": ["none"]}, 404, "NOT_FOUND", "no variant 'none'"),
        ("digits", {"variants": [FP32]}, 409, "CONFLICT", f"answers of {FP32} have not changed"),
        ("digits", {"variant": FP32}, 400, "INVALID_INPUT", "variant"),
        ("digits", {"why": "a\nb"}, 400, "INVALID_INPUT", "printable"),
    ],
)
async def test_what_cannot_be_accepted_is_a_typed_error(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog,
    task: str, body: dict[str, Any], status: int, code: str, error: str,
) -> None:  # fmt: skip
    live.told = {"answers": [told(INT8, SINCE_S), told(FP32, None)]}
    reply = await api.post(f"/v1/answers/{task}/accept", json=body)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert error in reply.json()["error"]
    assert (catalog.accepted_answers(), catalog.events(9)) == ((), ())


async def test_where_none_have_changed_there_is_nothing_to_accept(api: httpx.AsyncClient) -> None:
    reply = await api.post("/v1/answers/digits/accept", json={})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert reply.json()["error"] == "answers of digits have not changed since their first ones"


async def test_without_live_state_nothing_is_accepted(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.told, live.gone = {"answers": [told(INT8, SINCE_S)]}, True
    reply = await api.post("/v1/answers/digits/accept", json={})
    assert (reply.status_code, reply.json()["code"]) == (503, "STATE_UNAVAILABLE")
    assert catalog.accepted_answers() == ()

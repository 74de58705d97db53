"""Control messages: what one version says and another reads."""

from dataclasses import replace

import orjson

from tests.controlplane.builders import worker
from tests.workers.builders import echo_spec
from variants.core_time import CoreTime
from workers.channel.messages import decode_load, decode_status, encode


def test_a_status_comes_back_as_it_was_told() -> None:
    told = replace(worker("w1", "mlp"), evictable=((10.0, 0.25),), churn_per_s=0.01, cores=(0, 2))
    assert decode_status(encode(told)) == told
    cores = CoreTime(host="h1", cores=2, used=0.5, busy=1.5, waited=0.25)
    seen = replace(told, core_time=cores)
    assert decode_status(encode(seen)) == seen
    newer = orjson.loads(encode(seen))
    newer["core_time"]["mood"] = "good"
    assert decode_status(encode(newer)) == seen


def test_a_worker_of_another_version_may_say_less_and_more() -> None:
    said = orjson.loads(encode(worker("w1", "mlp")))
    for later in ("evictable", "churn_per_s", "borrows", "tells_queue", "withdraws", "askers"):
        del said[later]
    status = decode_status(encode(said | {"mood": "good"}))
    assert (status.worker, status.evictable, status.churn_per_s) == ("w1", (), 0.0)
    assert not status.borrows
    assert (status.tells_queue, status.askers) == (False, None)


def test_a_load_says_on_which_kind_of_device() -> None:
    told = echo_spec(device_kind="cpu-1-old")
    said = orjson.loads(encode(told))

    assert decode_load(said) == told
    del said["device_kind"]
    assert decode_load(said).device_kind == ""

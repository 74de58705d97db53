"""Control messages: what one version says and another reads."""

from dataclasses import replace

import orjson

from tests.controlplane.builders import worker
from workers.channel.messages import decode_status, encode


def test_a_status_comes_back_as_it_was_told() -> None:
    told = replace(worker("w1", "mlp"), evictable=((10.0, 0.25),), churn_per_s=0.01)
    assert decode_status(encode(told)) == told


def test_a_worker_of_another_version_may_say_less_and_more() -> None:
    said = orjson.loads(encode(worker("w1", "mlp")))
    del said["evictable"], said["churn_per_s"]
    status = decode_status(encode(said | {"mood": "good"}))
    assert (status.worker, status.evictable, status.churn_per_s) == ("w1", (), 0.0)

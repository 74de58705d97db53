"""The handler that fronts are compared with reads what the client of the bench sends."""

import json

from tests.bench.fronts.handler import answer
from tests.bench.serving.load import Job, requests


def test_a_query_of_the_bench_is_answered() -> None:
    body = requests(Job(port=1, connections=1, seconds=1, width=16))[0].partition(b"\r\n\r\n")[2]
    said = json.loads(answer(body))
    assert (said["variant"], said["labels"], len(said["outputs"][0])) == ("v", ["0"], 10)

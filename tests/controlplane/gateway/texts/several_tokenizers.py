"""Tasks whose models have tokenizers of their own, and how they are asked."""

from dataclasses import replace
from typing import Any

import orjson

from controlplane.gateway.protection.read_bodies import read
from controlplane.gateway.texts.reading import Tokenisers
from tests.controlplane.gateway.texts.test_reading import NAMES, TEXT, TOKENIZER, opinions
from tests.controlplane.gateway.texts.test_reading import TAGS as TAGGING
from tests.texts import other_tokenizer_json
from variants.buckets import TaskTable
from variants.texts.inputs import digest_of_text, packed
from variants.types import Slo, Task, TaskName, TensorSpec

OTHER_TOKENIZER = other_tokenizer_json()
OTHER = replace(TEXT, tokenizer=digest_of_text(OTHER_TOKENIZER), pad=1)
BOTH: dict[Any, bytes] = {
    TEXT.tokenizer: packed(TOKENIZER),
    OTHER.tokenizer: packed(OTHER_TOKENIZER),
}
OWN = {(TaskName("opinions.4"), "view-v1"): OTHER, (TaskName("tags.8"), "view-v1"): OTHER}
TASKS = TaskTable([opinions(4), opinions(8), TAGGING], BOTH, OWN)


def asked(
    tokenisers: Tokenisers,
    *texts: str,
    name: str = "opinions",
    tasks: TaskTable = TASKS,
    **fields: Any,
) -> Any:
    body = bytearray(orjson.dumps({"task": name, "inputs": texts, **fields}))
    return read(body, {"task": None, "received_ms": 5.0, "draw": 9}, tasks, tokenisers)


ECHOED = Task(
    name=TaskName("opinions"),
    inputs=tuple(TensorSpec(name=name, dtype="int64", shape=(8,)) for name in NAMES),
    outputs=(TensorSpec(name="seen", dtype="float32", shape=(8,)),),
    metric="r2",
    slo=Slo(latency_ms=60_000.0),
    text=TEXT,
)
"""Its variants answer with the numbers that they were asked with."""


IN_BOTH = TaskTable(
    [opinions(4), opinions(8)],
    BOTH,
    {(TaskName(f"opinions.{length}"), "view-v1"): OTHER for length in (4, 8)},
)

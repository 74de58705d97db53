"""What users of OpenAI's Python client do with vectors: run by the client's own environment.

``python openai_session.py HTTP_PORT TASK`` ends with 0 when every answer is right. It imports
nothing of ours. The task's vectors point up for texts of good words and down for those of bad ones.
"""

import asyncio
import sys

from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

TEXTS = ["good", "the bad film", "good good film", "bad"] * 40


def up(vector: list[float]) -> bool:
    return vector[1] > vector[0]


def refusal(client: OpenAI, model: str) -> APIStatusError | None:
    try:
        client.embeddings.create(model=model, input="a")
    except APIStatusError as error:
        return error
    return None


def session(url: str, task: str) -> str:
    """The model that answered."""
    client = OpenAI(
        base_url=url, api_key="none", max_retries=5, default_headers={"SLO-Latency-Ms": "60000"}
    )
    listed = [model.id for model in client.models.list()]
    assert task in listed, listed
    assert "digits" not in listed, listed
    one = client.embeddings.create(model=task, input="a good film")
    assert one.model in listed, listed
    assert one.object == "list"
    assert [each.index for each in one.data] == [0]
    assert up(one.data[0].embedding)
    assert one.usage.total_tokens == one.usage.prompt_tokens == 5
    many = client.embeddings.create(model=one.model, input=TEXTS)
    assert [each.index for each in many.data] == list(range(len(TEXTS)))
    assert [up(each.embedding) for each in many.data] == [True, False, True, False] * 40
    assert many.model == one.model
    plain = client.embeddings.create(model=task, input=TEXTS[:4], encoding_format="float")
    assert [each.embedding for each in plain.data] == [each.embedding for each in many.data[:4]]
    needs = {"slo": {"accuracy": 0.5, "latency_ms": 60_000}}
    strict = OpenAI(base_url=url, api_key="none")
    assert strict.embeddings.create(model=task, input="bad", extra_body=needs).data
    for model, kind, said in (
        ("nothing", NotFoundError, "there is no task 'nothing'"),
        (f"{task}/none-v1", NotFoundError, "has no model version 'none-v1'"),
        ("digits", BadRequestError, "gives no vectors"),
    ):
        refused = refusal(client, model)
        assert isinstance(refused, kind), refused
        assert said in refused.message, refused
        assert refused.code in ("TASK_NOT_FOUND", "NOT_FOUND", "INVALID_INPUT"), refused
    return str(one.model)


async def at_once(url: str, model: str) -> None:
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=5) as client:
        texts = [TEXTS[at : at + 8] for at in range(0, 64, 8)]
        asked = [client.embeddings.create(model=model, input=each) for each in texts]
        answers = await asyncio.gather(*asked)
    assert {answer.model for answer in answers} == {model}
    assert all(up(answer.data[0].embedding) for answer in answers)


if __name__ == "__main__":
    address = f"http://127.0.0.1:{sys.argv[1]}/v1"
    asyncio.run(at_once(address, session(address, sys.argv[2])))
    print("as expected")

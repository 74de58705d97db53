"""Validators that applications share: of equal declarations only."""

from typing import Annotated

import httpx
from fastapi import FastAPI, Query


def application(most: int) -> FastAPI:
    made = FastAPI()

    @made.get("/")
    def answer(number: Annotated[int, Query(le=most)] = 1) -> int:
        return number

    return made


async def status(app: FastAPI, number: int) -> int:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return (await client.get("/", params={"number": number})).status_code


async def test_validators_are_shared_where_all_that_is_declared_is_equal() -> None:
    two, again, three = application(2), application(2), application(3)
    [of_two], [of_again], [of_three] = (
        [one._type_adapter for one in app.routes[-1].dependant.query_params]  # type: ignore[attr-defined]
        for app in (two, again, three)
    )
    assert of_two is of_again
    assert of_two is not of_three
    assert [await status(app, 3) for app in (two, again, three)] == [422, 422, 200]

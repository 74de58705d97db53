"""Live state: what changes every second and may be lost, on the Redis protocol."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from controlplane.live_state.announcements import Announcements
from controlplane.live_state.connection import PREFIX, decode, replies_of
from controlplane.live_state.leading import Leading

GATEWAY_TTL_S = 10
NOTICES_TTL_S = 3600
REPLACING_TTL_S = 20
"""What one more was started for that nobody replaces any more ends after this."""
MOST_NOTICES = 1000
HISTORY_TTL_S = 2 * 3600
MOST_SAMPLES = 8 * 360
"""An hour of eight gateways; with more of them it is a shorter time."""
OPERATION_TTL_S = 24 * 3600


class LiveState(Leading, Announcements):
    """Live state on a Redis or Valkey server.

    Every method raises ``StateUnavailable`` when the server cannot be reached.
    """

    def __init__(self, url: str, *, timeout_s: float = 2.0) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self._gateways: list[str] = []
        """The ids of those that wrote, as they were known last."""
        self._newest: dict[str, dict[str, Any]] = {}
        """What each of them wrote last, as far as it was read."""

    async def put_controller(self, told: Mapping[str, Any]) -> None:
        await self._put("controller", told)

    async def controller(self) -> dict[str, Any] | None:
        """What the control loop told last of itself (``controller.events.loop_report``)."""
        return await self._get("controller")

    async def put_nodes(self, seen: Mapping[str, Any]) -> None:
        await self._put("nodes", seen, expires_s=60)

    async def nodes(self) -> dict[str, Any] | None:
        """``{"kinds": {kind: [node]}, "advice": [sentence]}``, if a control loop looked lately.

        With ``slices``, the device kinds as a setting says them, where these follow the nodes.
        """
        return await self._get("nodes")

    async def put_machines(self, seen: Mapping[str, Any]) -> None:
        await self._put("machines", seen, expires_s=60)

    async def machines(self) -> dict[str, Any] | None:
        """What ``controller.nodes.node_counts`` tells, if a control loop looked lately."""
        return await self._get("machines")

    async def put_canaries(self, found: Mapping[str, Any]) -> None:
        await self._put("canaries", found, expires_s=60)

    async def canaries(self) -> dict[str, Any]:
        """By the id of each share, what the control loop has found of it lately."""
        return await self._get("canaries") or {}

    async def put_replacing(self, parts: list[str]) -> None:
        """Have one more run of each of these, device kinds or ``gateways``, for a few seconds."""
        await self._put("replacing", {"parts": parts}, expires_s=REPLACING_TTL_S)

    async def end_replacing(self) -> None:
        await self._call(self._redis.delete(f"{PREFIX}replacing"))

    async def replacing(self) -> frozenset[str]:
        """Of what one more is to run while the others are replaced."""
        found = await self._get("replacing")
        return frozenset(map(str, found["parts"])) if found else frozenset()

    async def put_asked_for_nodes(self, *, asked: bool) -> None:
        """Keep whether a request for nodes of ours may stand with Ray."""
        key = f"{PREFIX}nodes_asked"
        await self._call(self._redis.set(key, b"1") if asked else self._redis.delete(key))

    async def asked_for_nodes(self) -> bool:
        """Whether one may, of this control loop or one before it."""
        return bool(await self._call(self._redis.exists(f"{PREFIX}nodes_asked")))

    async def put_notice(self, notice: Mapping[str, Any]) -> None:
        """Say that a node goes: ``node``, ``why`` and ``until_s``, a Unix time or 0.

        The last ones are kept, for as long as a control loop may take to be there again.
        """
        key = f"{PREFIX}notices"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(key, orjson.dumps(notice))
        pipeline.ltrim(key, -MOST_NOTICES, -1)
        pipeline.expire(key, NOTICES_TTL_S)
        await self._call(pipeline.execute())

    async def notices(self) -> list[bytes]:
        """What was said of nodes that go and was not passed on yet, as it was written, oldest
        first. Anything may stand there: a hook of a cloud may write it by itself."""
        return list(await self._call(self._redis.lrange(f"{PREFIX}notices", 0, -1)))

    async def noticed(self, written: bytes) -> None:
        """This one was passed on, or is none."""
        await self._call(self._redis.lrem(f"{PREFIX}notices", 0, written))  # type: ignore[arg-type]

    async def put_gateway(self, gateway: str, counters: Mapping[str, Any]) -> dict[str, Any] | None:
        """Keep what a gateway counted. Returns what the control loop told (``controller``)."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(f"{PREFIX}gateway:{gateway}", orjson.dumps(counters), ex=GATEWAY_TTL_S)
        pipeline.sadd(f"{PREFIX}gateways", gateway)
        pipeline.get(f"{PREFIX}controller")
        *_, told = await self._write(replies_of(pipeline))
        return decode(told) if told is not None else None

    async def gateways(self) -> dict[str, dict[str, Any]]:
        """What all gateways that wrote in the last 10 s have counted, by gateway.

        That is one request for as long as they are the same ones. Of what a gateway has written at
        several times (``at_s``) the newest counts, also where the server has an older one now: a
        replica that becomes the server lags behind it, and a write that was given up may arrive
        after a later one. Whoever takes differences would count all again.
        """
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.smembers(f"{PREFIX}gateways")
        known = self._gateways
        if known:
            pipeline.mget([f"{PREFIX}gateway:{name}" for name in known])
        members, *values = await self._call(replies_of(pipeline))
        self._gateways = sorted(member.decode() for member in members)
        if self._gateways != known:
            found = await self._members("gateways", "gateway", self._gateways)
        else:
            counted = dict(zip(known, *values, strict=True)) if known else {}
            found = await self._kept("gateways", counted)
        self._newest = {
            name: _newer(self._newest.get(name, counted), counted)
            for name, counted in found.items()
        }
        return dict(self._newest)

    async def put_history(self, sample: Mapping[str, Any]) -> None:
        """Keep how ten seconds went at one gateway, beside what all of them left before."""
        key = f"{PREFIX}history"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(key, orjson.dumps(sample))
        pipeline.ltrim(key, -MOST_SAMPLES, -1)
        pipeline.expire(key, HISTORY_TTL_S)
        await self._call(pipeline.execute())

    async def history(self) -> list[dict[str, Any]]:
        """What gateways left (``controlplane.gateway.reports.history_samples``), oldest first."""
        found = await self._call(self._redis.lrange(f"{PREFIX}history", 0, -1))
        return [decode(value) for value in found]

    async def put_operation(self, operation: str, state: Mapping[str, Any]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        key = f"{PREFIX}operation:{operation}"
        pipeline.set(key, orjson.dumps(state), ex=OPERATION_TTL_S)
        pipeline.sadd(f"{PREFIX}operations", operation)
        await self._write(replies_of(pipeline))

    async def operation(self, operation: str) -> dict[str, Any] | None:
        return await self._get(f"operation:{operation}")

    async def all_operations(self) -> dict[str, dict[str, Any]]:
        """All that have not expired, by their ids."""
        return await self._members("operations", "operation")


def _newer(known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Of what a gateway wrote, what it wrote later; what was found now, where it does not say."""
    known_s, found_s = known.get("at_s"), found.get("at_s")
    if not isinstance(known_s, int | float) or not isinstance(found_s, int | float):
        return found
    return known if found_s < known_s else found


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[LiveState]:
    """A live state that is closed again."""
    live = LiveState(url)
    try:
        yield live
    finally:
        await live.close()

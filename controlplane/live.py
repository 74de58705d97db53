"""Live state: what changes every second and may be lost, on the Redis protocol.

It only distributes. Truth is what the workers report; versions and epochs come from SQL. A live
state that restarts empty is refilled within a tick, and nobody is fooled by an old number.

Keys, all below ``modelless:``

===================  =====================================================================
``workers``          JSON: epoch and the workers' addresses, written by the control loop
``workers:status``   JSON: the workers' last status, written by the control loop
``gateway:<id>``     JSON: one gateway's counters since it started; expires
``operation:<id>``   JSON: progress of a registration over REST; expires after a day
``changed``          channel: something above, or the catalog, changed
===================  =====================================================================
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from redis import asyncio as aioredis
from redis.exceptions import RedisError

from variants.errors import StateUnavailable

PREFIX = "modelless:"
GATEWAY_TTL_S = 10
OPERATION_TTL_S = 24 * 3600


class LiveState:
    """Live state on a Redis or Valkey server.

    Every method raises ``StateUnavailable`` when the server cannot be reached.
    """

    def __init__(self, url: str, *, timeout_s: float = 2.0) -> None:
        self._redis = aioredis.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._subscriber = aioredis.Redis.from_url(url, socket_connect_timeout=timeout_s)

    async def ping(self) -> None:
        """Return when the server answers."""
        await self._call(self._redis.ping())

    async def put_workers(self, epoch: int, workers: list[dict[str, str]]) -> bool:
        """Publish where the workers are; an older epoch than the published one is ignored.

        Returns whether it was written.
        """
        current = await self.workers()
        if current is not None and current["epoch"] > epoch:
            return False
        await self._put("workers", {"epoch": epoch, "workers": workers})
        if current is None or current["workers"] != workers:
            await self.notify("workers")
        return True

    async def workers(self) -> dict[str, Any] | None:
        """``{"epoch": int, "workers": [{"id", "address", "device_kind"}]}``, if published."""
        return await self._get("workers")

    async def put_worker_status(self, statuses: list[dict[str, Any]]) -> None:
        await self._put("workers:status", {"workers": statuses}, expires_s=30)

    async def worker_status(self) -> list[dict[str, Any]]:
        """What each worker last said of itself; empty when nobody said anything for 30 s."""
        found = await self._get("workers:status")
        return list(found["workers"]) if found else []

    async def put_gateway(self, gateway: str, counters: Mapping[str, Any]) -> None:
        await self._put(f"gateway:{gateway}", counters, expires_s=GATEWAY_TTL_S)

    async def gateways(self) -> dict[str, dict[str, Any]]:
        """Counters of all gateways that wrote lately, by gateway."""
        start = f"{PREFIX}gateway:"
        keys = [key async for key in self._scan(f"{start}*")]
        if not keys:
            return {}
        values = await self._call(self._redis.mget(keys))
        return {
            key.decode().removeprefix(start): orjson.loads(value)
            for key, value in zip(keys, values, strict=True)
            if value is not None
        }

    async def put_operation(self, operation: str, state: Mapping[str, Any]) -> None:
        await self._put(f"operation:{operation}", state, expires_s=OPERATION_TTL_S)

    async def operation(self, operation: str) -> dict[str, Any] | None:
        return await self._get(f"operation:{operation}")

    async def notify(self, what: str) -> None:
        """Wake everyone who waits in ``changes``."""
        await self._call(self._redis.publish(f"{PREFIX}changed", what))

    async def changes(self) -> AsyncIterator[str]:
        """What changed, as it is announced; ends with ``StateUnavailable`` when the server goes.

        An announcement may be missed, so whoever waits here polls as well.
        """
        try:
            async with self._subscriber.pubsub() as pubsub:
                await pubsub.subscribe(f"{PREFIX}changed")
                async for message in pubsub.listen():
                    if message["type"] == "message":
                        yield message["data"].decode()
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    async def close(self) -> None:
        await self._redis.aclose()
        await self._subscriber.aclose()

    async def _put(self, key: str, value: Any, *, expires_s: int | None = None) -> None:
        await self._call(self._redis.set(PREFIX + key, orjson.dumps(value), ex=expires_s))

    async def _get(self, key: str) -> dict[str, Any] | None:
        value = await self._call(self._redis.get(PREFIX + key))
        return orjson.loads(value) if value is not None else None

    async def _scan(self, pattern: str) -> AsyncIterator[bytes]:
        try:
            async for key in self._redis.scan_iter(match=pattern, count=500):
                yield key
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    async def _call(self, reply: Any) -> Any:
        try:
            return await reply
        except (TimeoutError, RedisError, OSError) as error:
            raise _unavailable(error) from error


def _unavailable(error: BaseException) -> StateUnavailable:
    return StateUnavailable(f"the live state (Redis or Valkey) does not answer: {error}")

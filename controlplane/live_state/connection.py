"""Asking a Redis or Valkey server, and what becomes of its failures."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import orjson
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from variants.errors import StateUnavailable

PREFIX = "modelless:"
"""Of all keys."""
ASKED_AGAIN_S = 0.5
"""After a reply that did not come, the server is asked again."""
QUIET_S = 10.0
"""Who listens for so long in vain asks whether the server is there: a connection that a router has
forgotten, or whose server's machine is gone, looks like one on which nothing is said."""


class Silence:
    """Whether a server that does not reply is asked. Times are in seconds, of any clock.

    One that is stopped, or behind a network that drops all packets, costs each caller the whole
    patience, and a view that asks it several times a multiple of that. So after one reply that did
    not come in time, one caller at a time waits for it, and all others are refused at once.
    """

    def __init__(self) -> None:
        self._until_s: float | None = None
        self._asked = False

    def asks(self, now_s: float) -> bool:
        """Whether this caller may ask, and then tells how it went: ``replied`` or ``waited``."""
        if self._until_s is None:
            return True
        if self._asked or now_s < self._until_s:
            return False
        self._asked = True
        return True

    def replied(self) -> None:
        """The server said something, if only that it refuses."""
        self._until_s, self._asked = None, False

    def waited(self, now_s: float) -> None:
        """It said nothing in time."""
        self._until_s, self._asked = now_s + ASKED_AGAIN_S, False

    def left(self) -> None:
        """The caller waits no more, whatever became of it: the next one may ask."""
        self._asked = False


class Connection:
    """A server, by two connections: one to ask it, and one to hear what is published.

    Every method raises ``StateUnavailable`` when the server cannot be reached.
    """

    def __init__(self, url: str, *, timeout_s: float = 2.0) -> None:
        self._timeout_s = timeout_s
        # The client's own ten retries with pauses would hold a caller for a minute. One, at once,
        # replaces a pooled connection that a restarted server has closed.
        once = Retry(NoBackoff(), 1, (RedisConnectionError,))
        never = Retry(NoBackoff(), 0)
        # Without ``socket_timeout``: ``_call`` ends what takes too long, and the client would have
        # a task and two timers of its own for each request besides.
        self._redis = aioredis.Redis.from_url(
            url, socket_timeout=None, socket_connect_timeout=timeout_s, retry=once
        )
        self._subscriber = aioredis.Redis.from_url(
            url, socket_connect_timeout=timeout_s, retry=never
        )
        self._silence = Silence()
        self._too_late = f"no reply within {timeout_s:,g} s"
        self.refused = ""
        """Why it did not take what was last written; empty where it did."""

    async def ping(self) -> None:
        """Return when the server answers."""
        await self._call(self._redis.ping())

    async def _put(self, key: str, value: Any, *, expires_s: int | None = None) -> None:
        await self._write(self._redis.set(PREFIX + key, orjson.dumps(value), ex=expires_s))

    async def _get(self, key: str) -> dict[str, Any] | None:
        value = await self._call(self._redis.get(PREFIX + key))
        return decode(value) if value is not None else None

    async def _members(
        self, names_key: str, kind: str, names: list[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """What is kept of a set's members, by their names, where these are not given; those that
        have expired leave it."""
        if names is None:
            members = await self._call(self._redis.smembers(PREFIX + names_key))
            names = sorted(member.decode() for member in members)
        if not names:
            return {}
        values = await self._call(self._redis.mget([f"{PREFIX}{kind}:{name}" for name in names]))
        return await self._kept(names_key, dict(zip(names, values, strict=True)))

    async def _kept(
        self, names_key: str, found: Mapping[str, bytes | None]
    ) -> dict[str, dict[str, Any]]:
        """Of these members of a set those that have not expired; the others leave it."""
        if expired := [name for name, value in found.items() if value is None]:
            await self._call(self._redis.srem(PREFIX + names_key, *expired))
        return {name: decode(value) for name, value in found.items() if value is not None}

    async def _write(self, reply: Awaitable[Any]) -> Any:
        """The reply to what is no script: of these some are taken also where memory is full."""
        try:
            written = await self._call(reply)
        except StateUnavailable as error:
            self.refused = error.message
            raise
        self.refused = ""
        return written

    async def _call(self, reply: Awaitable[Any]) -> Any:
        """The reply, within ``timeout_s``; at once an error while others have waited in vain
        (``Silence``). The call runs in a task of its own, which is cancelled.

        Awaited directly, the client loses a cancellation now and then, and the task that was
        cancelled would go on for ever.
        """
        clock = asyncio.get_running_loop().time
        if not self._silence.asks(clock()):
            if inspect.iscoroutine(reply):
                reply.close()
            raise unavailable(TimeoutError(self._too_late))
        call = asyncio.ensure_future(reply)
        # Looked at, so that an error after the time is over is not reported as forgotten.
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            done, _ = await asyncio.wait((call,), timeout=self._timeout_s)
            if not done:
                raise TimeoutError(self._too_late)
            reached = call.result()
        except (TimeoutError, RedisTimeoutError) as error:
            self._silence.waited(clock())
            raise unavailable(error) from error
        except (RedisError, OSError) as error:
            self._silence.replied()
            if isinstance(error, ReadOnlyError):
                await self._leave()
            raise unavailable(error) from error
        finally:
            call.cancel()
            self._silence.left()
        self._silence.replied()
        return reached

    async def _leave(self) -> None:
        """End all connections by which the server is asked: one that became a replica keeps them,
        and its name may lead to another one by now. What is asked over them meanwhile is asked once
        more. Who listens hears at a replica what is said at its master."""
        await self._redis.connection_pool.disconnect(inuse_connections=True)

    async def _said(
        self, channel: str, listening: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        """What is published, until the server goes (``StateUnavailable``); ``listening`` is called
        when nothing is missed any more."""
        try:
            async with self._subscriber.pubsub() as pubsub:
                async with asyncio.timeout(self._timeout_s):
                    await pubsub.subscribe(PREFIX + channel)
                asked = False
                while True:
                    wait_s = self._timeout_s if asked else QUIET_S
                    message = await pubsub.get_message(timeout=wait_s)
                    if message is None:
                        if asked:
                            raise TimeoutError(self._too_late)
                        await pubsub.ping()
                    elif message["type"] == "message":
                        yield message["data"]
                    elif message["type"] == "subscribe":
                        listening()
                    asked = message is None
        except (TimeoutError, RedisError, OSError) as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        await self._redis.aclose()
        await self._subscriber.aclose()


async def replies_of(pipeline: Any) -> list[Any]:
    """Raises what the server said: the client's own error holds the whole command, too."""
    replies = await pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply
    return list(replies)


def decode(value: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        StateUnavailable: it is none: another program writes to these keys.
    """
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise unavailable(error) from error
    if not isinstance(found, dict):
        raise unavailable(TypeError(f"{type(found).__name__} where an object is expected"))
    return found


def unavailable(error: BaseException) -> StateUnavailable:
    said = str(error).rstrip(".") or type(error).__name__
    refuses = isinstance(error, (ResponseError, AuthenticationError))
    verb = "refuses" if refuses else "does not answer"
    return StateUnavailable(f"the live state (Redis or Valkey) {verb}: {said}")

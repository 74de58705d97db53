"""Live state: what changes every second and may be lost, on the Redis protocol.

It only distributes. Truth is what the workers report; versions and epochs come from SQL. A live
state that restarts empty is refilled within a tick, and the epochs that it lost do no harm.

Keys, all below ``modelless:``

===================  =====================================================================
``installation``     who leads: installation, host and replica; expires
``workers``          JSON: epoch and the workers' addresses, written by the control loop
``controller``       JSON: what the control loop tells of itself, and stays when it does not
``nodes``            JSON: nodes by device kind, written by the control loop; expires
``machines``         JSON: nodes and what is asked for, written by the control loop; expires
``canaries``         JSON: what was found of each canary, written by the control loop; expires
``notices``          list of JSON: nodes that go, as was said; read by the control loop; expires
``replacing``        JSON: of what one more is to run, by `modelless upgrade`; expires
``nodes_asked``      there while nodes are asked for, written by the control loop
``gateway:<id>``     JSON: one gateway's counters since it started; expires
``history``          list of JSON: how ten seconds went at a gateway; the last ones; expires
``gateways``         set: the ids of gateways that wrote, expired ones included
``operation:<id>``   JSON: progress of a registration over REST; expires after a day
``operations``       set: their ids
``mark``             left by the control loop: where it is missing, everything was lost
``changed``          channel: something above, or the catalog, changed; or all is being stopped
``asked``            channel of JSON: what a gateway asks all others, under a token
``answers:<token>``  list of JSON: what they answer; expires after seconds
===================  =====================================================================
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import orjson
from redis import asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from variants.errors import StateUnavailable

PREFIX = "modelless:"
GATEWAY_TTL_S = 10
NOTICES_TTL_S = 3600
REPLACING_TTL_S = 20
"""What one more was started for that nobody replaces any more ends after this."""
MOST_NOTICES = 1000
HISTORY_TTL_S = 2 * 3600
MOST_SAMPLES = 8 * 360
"""An hour of eight gateways; with more of them it is a shorter time."""
OPERATION_TTL_S = 24 * 3600
ENDING = "ending"
"""Announced when everything is about to be stopped. It is kept nowhere, for the next start."""
ANSWERS_TTL_S = 5

_PUBLISH = """
local function published(key, channel, epoch, directory, force)
  local current = redis.call('GET', key)
  if current == directory then return 1 end
  if current and force == '' then
    local read, known = pcall(cjson.decode, current)
    if read and type(known) == 'table' and (tonumber(known.epoch) or 0) > tonumber(epoch) then
      return 0
    end
  end
  redis.call('SET', key, directory)
  redis.call('PUBLISH', channel, 'workers')
  return 1
end
"""
"""Compares and writes at once: between a read and a write of two controllers, the older could win.
``force`` is anything to write over a newer epoch."""

_CLAIM = """
local function claimed(key, owner, seconds)
  local current = redis.call('GET', key)
  local holder = current and string.match(current, '^(%S+) %S+ %S+$')
  if holder and holder ~= string.match(owner, '^%S*') then return current end
  redis.call('SET', key, owner, 'EX', seconds)
  return ''
end
"""
"""The key tells who leads; ``owner`` wants to, for so many seconds. The first of the three words of
an owner names the installation; what else stands there is nobody's."""

_CLAIM_ALONE = f"{_CLAIM} return claimed(KEYS[1], ARGV[1], ARGV[2])"
_PUBLISH_ALONE = f"{_PUBLISH} return published(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3])"
_LEAD = f"""{_CLAIM} {_PUBLISH}
local other = claimed(KEYS[3], ARGV[3], ARGV[4])
if other ~= '' then return {{other, 0, 0}} end
if published(KEYS[1], KEYS[2], ARGV[1], ARGV[2], '') == 0 then return {{'', 0, 0}} end
return {{'', 1, redis.call('SET', KEYS[4], '1', 'NX') and 1 or 0}}
"""
"""What a turn of the control loop does, at once. Nothing is published in the live state of another
installation, nor marked where a newer epoch leads."""
_GIVE_UP = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class Led(NamedTuple):
    """What became of what a control loop published."""

    other: str
    """The owner of another installation that has the live state; empty where it is ours."""
    published: bool
    """Whether the directory is what is published now, and not that of a newer epoch."""
    empty: bool
    """Whether no mark was there, which means that everything was lost."""


class LiveState:
    """Live state on a Redis or Valkey server.

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
        self._gateways: list[str] = []
        """The ids of those that wrote, as they were known last."""
        self.refused = ""
        """Why it did not take what was last written; empty where it did."""

    async def ping(self) -> None:
        """Return when the server answers."""
        await self._call(self._redis.ping())

    async def claim(self, owner: str, seconds: int) -> str:
        """Have this live state for an installation for a while; again and again to keep it.

        Args:
            owner: installation, host and replica.

        Returns:
            The owner of another installation that has it; empty where it is ours now.
        """
        key, arguments = f"{PREFIX}installation", (owner, str(seconds))
        found = await self._call(self._redis.eval(_CLAIM_ALONE, 1, key, *arguments))
        return bytes(found).decode()

    async def owner(self) -> str:
        """Who has this live state; empty where nobody does."""
        found = await self._call(self._redis.get(f"{PREFIX}installation"))
        return found.decode() if found else ""

    async def give_up(self, owner: str) -> None:
        """The end of a claim of exactly this owner."""
        await self._call(self._redis.eval(_GIVE_UP, 1, f"{PREFIX}installation", owner))

    async def put_workers(
        self, epoch: int, workers: list[dict[str, str]], *, force: bool = False
    ) -> bool:
        """Publish where the workers are; an older epoch than the published one is ignored.

        Args:
            force: write over a newer epoch, too.

        Returns whether this is what is published now.
        """
        directory = orjson.dumps({"epoch": epoch, "workers": workers})
        keys = (f"{PREFIX}workers", f"{PREFIX}changed")
        arguments = (str(epoch), directory, "force" if force else "")
        return bool(await self._call(self._redis.eval(_PUBLISH_ALONE, 2, *keys, *arguments)))

    async def lead(
        self, owner: str, seconds: int, epoch: int, workers: list[dict[str, str]]
    ) -> Led:
        """``claim``, and where nobody else has it ``put_workers`` and a mark, in one request."""
        directory = orjson.dumps({"epoch": epoch, "workers": workers})
        keys = [f"{PREFIX}{name}" for name in ("workers", "changed", "installation", "mark")]
        arguments = (str(epoch), directory, owner, str(seconds))
        other, published, empty = await self._call(self._redis.eval(_LEAD, 4, *keys, *arguments))
        return Led(other=other.decode(), published=bool(published), empty=bool(empty))

    async def workers(self) -> dict[str, Any] | None:
        """``{"epoch": int, "workers": [{"id", "address", "device_kind"}]}``, if published."""
        return await self._get("workers")

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
        """By the number of each share, what the control loop has found of it lately."""
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
        *_, told = await self._write(_replies(pipeline))
        return _decode(told) if told is not None else None

    async def gateways(self) -> dict[str, dict[str, Any]]:
        """What all gateways that wrote in the last 10 s have counted, by gateway.

        That is one request for as long as they are the same ones.
        """
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.smembers(f"{PREFIX}gateways")
        known = self._gateways
        if known:
            pipeline.mget([f"{PREFIX}gateway:{name}" for name in known])
        members, *values = await self._call(_replies(pipeline))
        self._gateways = sorted(member.decode() for member in members)
        if self._gateways != known:
            return await self._members("gateways", "gateway", self._gateways)
        return await self._kept("gateways", dict(zip(known, *values, strict=True)) if known else {})

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
        return [_decode(value) for value in found]

    async def put_operation(self, operation: str, state: Mapping[str, Any]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        key = f"{PREFIX}operation:{operation}"
        pipeline.set(key, orjson.dumps(state), ex=OPERATION_TTL_S)
        pipeline.sadd(f"{PREFIX}operations", operation)
        await self._write(_replies(pipeline))

    async def operation(self, operation: str) -> dict[str, Any] | None:
        return await self._get(f"operation:{operation}")

    async def all_operations(self) -> dict[str, dict[str, Any]]:
        """All that have not expired, by their ids."""
        return await self._members("operations", "operation")

    async def notify(self, what: str) -> None:
        """Announce a change, or ``ENDING``, to all readers of ``changes``."""
        await self._call(self._redis.publish(f"{PREFIX}changed", what))

    async def changes(self) -> AsyncIterator[str]:
        """What changed, as it is announced; ends with ``StateUnavailable`` when the server goes.

        An announcement may be missed, so readers of this poll as well.
        """
        async with aclosing(self._said("changed")) as heard:
            async for said in heard:
                yield said.decode()

    async def ask(self, token: str, question: Mapping[str, Any]) -> int:
        """Ask all gateways that listen (``questions``); how many these are, the asker included."""
        body = orjson.dumps({"token": token, "question": question})
        return int(await self._call(self._redis.publish(f"{PREFIX}asked", body)))

    async def questions(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What gateways ask each other, with the token to answer by, as long as the server is
        there. Who does not listen at that moment never hears of it.

        Raises:
            StateUnavailable: the server is gone, or another program writes there.
        """
        async with aclosing(self._said("asked")) as heard:
            async for said in heard:
                asked = _decode(said)
                yield str(asked.get("token")), dict(asked.get("question") or {})

    async def answer(self, token: str, said: Mapping[str, Any]) -> None:
        """Answer a question, for a few seconds."""
        key = f"{PREFIX}answers:{token}"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(key, orjson.dumps(said))
        pipeline.expire(key, ANSWERS_TTL_S)
        await self._call(pipeline.execute())

    async def answers(self, token: str, wait_s: float) -> dict[str, Any] | None:
        """One answer to a question, which is then gone; None where none comes in time.

        Args:
            wait_s: less than what this server may take for any reply.
        """
        found = await self._call(self._redis.blpop([f"{PREFIX}answers:{token}"], timeout=wait_s))
        return None if found is None else _decode(found[1])

    async def _said(self, channel: str) -> AsyncGenerator[bytes, None]:
        """What is published, until the server goes (``StateUnavailable``)."""
        try:
            async with self._subscriber.pubsub() as pubsub:
                async with asyncio.timeout(self._timeout_s):
                    await pubsub.subscribe(PREFIX + channel)
                async for message in pubsub.listen():
                    if message["type"] == "message":
                        yield message["data"]
        except (TimeoutError, RedisError, OSError) as error:
            raise _unavailable(error) from error

    async def close(self) -> None:
        await self._redis.aclose()
        await self._subscriber.aclose()

    async def _put(self, key: str, value: Any, *, expires_s: int | None = None) -> None:
        await self._write(self._redis.set(PREFIX + key, orjson.dumps(value), ex=expires_s))

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
        return {name: _decode(value) for name, value in found.items() if value is not None}

    async def _get(self, key: str) -> dict[str, Any] | None:
        value = await self._call(self._redis.get(PREFIX + key))
        return _decode(value) if value is not None else None

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
        """The reply, within ``timeout_s``. The call runs in a task of its own, which is cancelled.

        Awaited directly, the client loses a cancellation now and then, and the task that was
        cancelled would go on for ever.
        """
        call = asyncio.ensure_future(reply)
        # Looked at, so that an error after the time is over is not reported as forgotten.
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            done, _ = await asyncio.wait((call,), timeout=self._timeout_s)
            if not done:
                raise _unavailable(TimeoutError(f"no reply within {self._timeout_s:g} s"))
            return call.result()
        except (TimeoutError, RedisError, OSError) as error:
            raise _unavailable(error) from error
        finally:
            call.cancel()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[LiveState]:
    """A live state that is closed again."""
    live = LiveState(url)
    try:
        yield live
    finally:
        await live.close()


async def _replies(pipeline: Any) -> list[Any]:
    """Raises what the server said: the client's own error holds the whole command, too."""
    replies = await pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply
    return list(replies)


def _decode(value: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        StateUnavailable: it is none: another program writes to these keys.
    """
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise _unavailable(error) from error
    if not isinstance(found, dict):
        raise _unavailable(TypeError(f"{type(found).__name__} where an object is expected"))
    return found


def _unavailable(error: BaseException) -> StateUnavailable:
    said = str(error).rstrip(".") or type(error).__name__
    refuses = isinstance(error, (ResponseError, AuthenticationError))
    verb = "refuses" if refuses else "does not answer"
    return StateUnavailable(f"the live state (Redis or Valkey) {verb}: {said}")

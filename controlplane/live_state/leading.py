"""Who leads, and where the workers are: written by control loops, of which the newest wins."""

from typing import Any, NamedTuple

import orjson

from controlplane.live_state.connection import PREFIX, Connection

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


class Leading(Connection):
    """The part of the live state that control loops of several installations or epochs may all
    want to write."""

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

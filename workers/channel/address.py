"""Addresses of workers, ``unix:/path`` or ``tcp:host:port``, and connecting to them."""

import asyncio


async def connect(address: str, protocol: asyncio.Protocol) -> None:
    """Open a connection that ``protocol`` speaks on.

    Raises:
        ValueError: the address has another form.
        OSError: nothing can be reached there.
    """
    loop = asyncio.get_running_loop()
    scheme, _, where = address.partition(":")
    if scheme == "unix" and where:
        await loop.create_unix_connection(lambda: protocol, where)
    elif scheme == "tcp" and ":" in where:
        host, _, port = where.rpartition(":")
        await loop.create_connection(lambda: protocol, host.strip("[]"), int(port))
    else:
        raise ValueError(f"an address is unix:/path or tcp:host:port, not {address!r}")

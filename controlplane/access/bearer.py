"""The header by which a client shows its token or its key."""

from variants.errors import InvalidInput

UNSENDABLE = "a header carries printable characters of ASCII alone"


def tidied(token: str) -> str:
    """A token as headers carry it: without what stands around it, such as the end of the line of
    the file that it was read from.

    Raises:
        InvalidInput: no header can carry it. The text does not show it.
    """
    bare = token.strip()
    if not (bare.isascii() and bare.isprintable()):
        raise InvalidInput(f"the token cannot be sent: {UNSENDABLE}")
    return bare


def authorization(token: str) -> dict[str, str]:
    """The header that carries a token; none where there is no token.

    Raises:
        InvalidInput: no header can carry it.
    """
    return {"Authorization": f"Bearer {bare}"} if (bare := tidied(token)) else {}

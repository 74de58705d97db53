"""Rows on their way to a GPU, through page-locked memory.

Only from page-locked memory are copies to the device asynchronous. So rows are copied into it piece
by piece, as queries brought them, and each piece is on its way while the next one is copied.
"""

from collections.abc import Iterator, Sequence

from workers.runtimes.cuda import Device
from workers.runtimes.protocol import Tensor

PIECE_BYTES = 2**20
"""So many bytes go to the device at once, or a row where that is more."""


def upload_rows(
    device: Device, stream: int, to: int, source: int, locked: Tensor, pieces: Sequence[Tensor]
) -> None:
    """Send rows to the device, one piece after the other; the stream is not waited for.

    Args:
        to: their address on the device.
        source: the address of ``locked``.
        locked: page-locked memory for all of them, ``(rows, *shape)``.
        pieces: the rows, one tensor ``(rows, *shape)`` after the other; together as many.
    """
    row_bytes = locked.nbytes // len(locked)
    most = max(1, PIECE_BYTES // max(1, row_bytes))
    begin = end = 0
    for piece in _cut(pieces, most):
        locked[end : end + len(piece)] = piece
        end += len(piece)
        if end - begin >= most or end == len(locked):
            at = begin * row_bytes
            device.upload(to + at, source + at, (end - begin) * row_bytes, stream)
            begin = end


def _cut(pieces: Sequence[Tensor], most: int) -> Iterator[Tensor]:
    """The same rows in pieces of at most ``most``."""
    for piece in pieces:
        if len(piece) <= most:
            yield piece
        else:
            yield from (piece[at : at + most] for at in range(0, len(piece), most))

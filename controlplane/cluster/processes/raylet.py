"""Watching the raylet, Ray's process of this machine on which all others hang."""

import socket


class RayletWatch:
    """Whether the raylet of this machine has ended. It is held by one connection, which ends with
    it: of each that comes and goes it writes a line into its log."""

    def __init__(self, path: str) -> None:
        """
        Args:
            path: of its Unix socket.
        """
        self._path = path
        self._held: socket.socket | None = None

    def has_ended(self) -> bool:
        if self._held is not None:
            try:
                if self._held.recv(1):
                    return False
            except BlockingIOError:
                return False
            except OSError:
                pass
            self.close()
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.settimeout(1.0)
        try:
            probe.connect(self._path)
        except OSError as error:
            probe.close()
            # A connection that waits to be taken is a raylet that is busy.
            return not isinstance(error, TimeoutError)
        probe.setblocking(False)
        self._held = probe
        return False

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

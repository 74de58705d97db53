"""What one `modelless up` has for itself alone: its state directory, and its gateways' ports."""

import socket
from typing import IO

from controlplane.gateway.listening import Kept, bind, keep, other_place
from controlplane.settings import Settings
from controlplane.startup.presence import already_running, lock_path, read_state, state_path
from controlplane.startup.state_directory import take_lock
from variants.errors import Conflict, InvalidInput


class Claim:
    """The lock of a state directory, and ports that are kept from other installations."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock: IO[str] | None = None
        self._kept: dict[int, socket.socket] = {}
        """What keeps a port, by port."""

    def take_directory(self) -> None:
        """Take the state directory, which has to be there.

        Raises:
            Conflict: another process has it.
            InvalidInput: it cannot be locked.
        """
        settings = self._settings
        try:
            self._lock = take_lock(lock_path(settings))
        except OSError as error:
            raise InvalidInput(
                f"{settings.run_dir} cannot be locked: {error.strerror}; set MODELLESS_STATE_DIR"
            ) from error
        if self._lock is None:
            raise Conflict(already_running(settings, read_state(settings)))

    def take_ports(self) -> None:
        """Take the ports that gateways listen on, and look whether they still can.

        Raises:
            Conflict: one is taken, or is not ours.
        """
        settings, alone = self._settings, not self._settings.ray_address
        ports = [(settings.port, "--port or MODELLESS_PORT")]
        if settings.grpc_port:
            ports.append((settings.grpc_port, "MODELLESS_GRPC_PORT, or 0 for no gRPC"))
        for port, remedy in ports:
            try:
                if alone and port not in self._kept:
                    self._kept[port] = keep(settings.host, port)
                # On a cluster, gateways of a killed `up` may still answer: this one takes them
                # over. There the machines of gateways have the ports, and this one need not.
                bind(settings, alone=alone, port=port, listen=False).close()
            except Kept as error:
                raise Conflict(f"{error}; choose another port with {remedy}") from error
            except OSError as error:
                raise Conflict(
                    f"{settings.host}:{port} cannot be used: {error.strerror}; "
                    f"{other_place(error, remedy)}"
                ) from error

    def release(self) -> None:
        """Give all of it back; the state file goes with the directory."""
        if self._lock is not None:
            state_path(self._settings).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None
        while self._kept:
            self._kept.popitem()[1].close()

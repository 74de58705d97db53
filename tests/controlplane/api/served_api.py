"""An API that listens on loopback, in a thread, for as long as it is entered."""

import socket
import threading
import time

import uvicorn
from fastapi import FastAPI


class ServedApi:
    """Listens from the start on, and answers once it is entered."""

    def __init__(self, api: FastAPI, port: int = 0) -> None:
        """``port`` is 0 for one that is free."""
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(api, log_config=None))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "ServedApi":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

"""A TCP relay on loopback, in its own threads, that can cut connections between two server processes."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Listens at `port` and forwards to the target. `cut`: bytes from the target after which both ends are closed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.cut: int | None = None
        self.passed = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop accepting; open connections end by themselves."""
        # Closing alone does not wake an accept() of another thread.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            for source, sink, counted in ((near, far, False), (far, near, True)):
                thread = threading.Thread(target=self._copy, args=(source, sink, counted), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if counted and self.cut is not None and self.passed + len(data) > self.cut:
                    sink.sendall(data[: max(0, self.cut - self.passed)])
                    break
                self.passed += len(data) if counted else 0
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            if counted:
                end.close()

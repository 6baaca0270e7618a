"""A TCP proxy before a database that can cut the line right after a COMMIT took effect: the lost acknowledgement."""

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Forwards loopback connections to a port.

    `cut_after_commit` drops the next connection that commits, once the server has; `delay_commit` drops it at once,
    while the server commits a second later.
    """

    def __init__(self, port: int, at: int = 0) -> None:
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", at))
        self.port = int(self.listener.getsockname()[1])
        self.cut_after_commit = False
        self.delay_commit = False
        self.cuts = 0
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.target)) as server:
            # Refused or broken while the server restarts: the client is cut off, as without a proxy.
            committing = threading.Event()
            back = threading.Thread(target=self._back, args=(server, client, committing), daemon=True)
            back.start()
            while data := _receive(client):
                if self.delay_commit and b"COMMIT" in data:
                    self._carry_out_later(client)
                if self.cut_after_commit and b"COMMIT" in data:
                    committing.set()
                server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)

    def _carry_out_later(self, client: socket.socket) -> None:
        """Cut the client off; the server gets the COMMIT when the client is already trying again."""
        self.delay_commit = False
        self.cuts += 1
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        time.sleep(1)

    def _back(self, server: socket.socket, client: socket.socket, committing: threading.Event) -> None:
        while data := _receive(server):
            if committing.is_set():  # the server has answered, so the commit took effect; the client never hears of it
                self.cut_after_commit = False
                self.cuts += 1
                break
            with suppress(OSError):  # it may have been cut off
                client.sendall(data)
        for side in (client, server):  # closing alone would not wake the thread that reads from it
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


def _receive(side: socket.socket) -> bytes:
    try:
        return side.recv(65536)
    except OSError:
        return b""

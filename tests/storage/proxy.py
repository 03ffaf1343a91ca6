"""A proxy on loopback between a client and an S3 server, which counts requests and misbehaves when told to."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PASS, REFUSE, DROP, LOSE, STALL, STRIP, TRUNCATE, CORRUPT = (
    "pass", "503", "drop the request", "lose the answer", "stall", "strip preconditions", "truncate", "corrupt",
)  # fmt: skip


class Proxy:
    """Forwards to `upstream`; `rule(method, path, number of the request)` names what happens to each request.

    A rule may sleep. `seen` counts requests by method, and listings as LIST.
    """

    def __init__(self, upstream: str) -> None:
        self.rule: Callable[[str, str, int], str] = lambda method, path, number: PASS
        self.seen: Counter[str] = Counter()
        self.acted: Counter[str] = Counter()
        self.ended = threading.Event()
        self._guard = threading.Lock()
        parts = urlsplit(upstream)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client went away
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                action = proxy.decide(self.command, self.path)
                if action == STALL:
                    proxy.ended.wait(60)
                if action in (STALL, DROP):
                    self.hang_up()
                    return
                if action == REFUSE:
                    self.reply(503, "Slow Down", {}, b"")
                    return
                headers = dict(self.headers.items())
                if action == STRIP:
                    headers = {k: v for k, v in headers.items() if k.lower() not in ("if-match", "if-none-match")}
                connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
                try:
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    data = answer.read()
                finally:
                    connection.close()
                if action == LOSE:
                    self.hang_up()
                    return
                kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding")}
                if action == CORRUPT and data:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                self.reply(answer.status, answer.reason, kept, data, cut=action == TRUNCATE)

            def reply(
                self, status: int, reason: str, headers: dict[str, str], data: bytes, *, cut: bool = False
            ) -> None:
                sent = {"Content-Length": str(len(data)), **headers}
                lines = [f"HTTP/1.1 {status} {reason}", *(f"{k}: {v}" for k, v in sent.items()), "", ""]
                self.wfile.write("\r\n".join(lines).encode("latin-1") + (data[: len(data) // 2] if cut else data))
                if cut:
                    self.hang_up()

            def hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def decide(self, method: str, path: str) -> str:
        with self._guard:
            kind = "LIST" if method == "GET" and "list-type=2" in path else method
            self.seen[kind] += 1
            number = self.seen.total()
        action = self.rule(kind, path, number)
        with self._guard:
            self.acted[action] += 1
        return action

    def close(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


def wait_until_open(port: int, seconds: float) -> None:
    """Raises TimeoutError when nothing listens on a port of loopback by then."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise TimeoutError(f"nothing listens on port {port}") from None
            time.sleep(0.05)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port

"""A headless Chromium driven over its DevTools protocol: what it logs, what it asks for, what it shows."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-port=0",
)  # fmt: skip


@dataclass
class Tab:
    """One page: `complaints` are console errors and uncaught exceptions, `requests` the addresses it asked for."""

    socket: ClientConnection
    session: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    number: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, "sessionId": self.session}
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(timeout=60))
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"])[:500])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])
            case "Network.requestWillBeSent" if not told["request"]["url"].startswith("data:"):
                self.requests.append(told["request"]["url"])

    def open(self, address: str) -> None:
        """Go to an address and wait until it has loaded."""
        self.call("Page.navigate", url="about:blank")
        self.until("document.readyState === 'complete' && location.href === 'about:blank'")
        self.call("Page.navigate", url=address)
        there = json.dumps(address.partition("#")[0])
        self.until(f"document.readyState === 'complete' && location.href.split('#')[0] === {there}")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + 30
        while not self.run(script):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.02)

    def look(
        self, path: Path, *, width: int = 1280, height: int = 1600, dark: bool = False, whole: bool = False
    ) -> Path:
        """A screenshot of the first screen, or of the whole page."""
        self.size(width, height, dark=dark)
        if whole:
            height = int(self.run("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window's size and the reader's colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def pdf(self, path: Path) -> Path:
        """The page as printed on A4."""
        made = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        path.write_bytes(base64.b64decode(made["data"]))
        return path


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser that can reach nothing but 127.0.0.1, with one tab."""
    command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, path = _port(process, profile / "DevToolsActivePort")
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, ping_interval=None) as socket:
            tab = Tab(socket, "")
            socket.send(json.dumps({"id": 0, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
            target = _answer(socket, 0)["targetId"]
            attach = {"targetId": target, "flatten": True}
            socket.send(json.dumps({"id": -1, "method": "Target.attachToTarget", "params": attach}))
            tab.session = _answer(socket, -1)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.call(f"{domain}.enable")
            yield tab
    finally:
        process.terminate()
        process.wait(20)


def _port(process: subprocess.Popen[bytes], file: Path) -> tuple[int, str]:
    deadline = time.monotonic() + 60
    while not (file.exists() and len(lines := file.read_text().split()) == 2):
        assert process.poll() is None, "chromium ended by itself"
        assert time.monotonic() < deadline, "chromium did not start"
        time.sleep(0.02)
    return int(lines[0]), lines[1]


def _answer(socket: ClientConnection, number: int) -> dict[str, Any]:
    while (answer := json.loads(socket.recv(timeout=60))).get("id") != number:
        continue
    return dict(answer["result"])

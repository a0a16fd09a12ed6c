"""The page in a real browser, driven by nothing but keys."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from tests.api.service import Api, run, server
from tests.api.test_page import populated
from tests.brain.brains import START, Clock
from tests.patience import patient

FOCUSED = """(() => {
  const own = document.activeElement, style = getComputedStyle(own);
  const shape = own.querySelector && own.querySelector('circle, path');
  const thick = shape ? parseFloat(getComputedStyle(shape).strokeWidth) : 0;
  return {tag: own.tagName.toLowerCase(), href: own.getAttribute('href') || '', id: own.id,
          name: own.getAttribute('name') || '', left: own.getBoundingClientRect().left,
          shown: style.outlineStyle !== 'none' || thick > 2};
})()"""
KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}


class Tab:
    """One tab of the browser, over its debugging socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json(timeout=20)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    async def value(self, expression: str) -> Any:
        got = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return got["result"].get("value")

    async def press(self, key: str) -> dict[str, Any]:
        """Press a key; what has the focus then."""
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        await self.call("Input.dispatchKeyEvent", **common, **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        return dict(await self.until(FOCUSED))  # nothing, while the page is on its way elsewhere

    async def until(self, expression: str) -> Any:
        async with asyncio.timeout(patient(15)):
            while not (found := await self.value(expression)):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def browser(program: str, folder: Path, url: str) -> AsyncIterator[Tab]:
    """A headless browser that shows `url`."""
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "--window-size=900,900",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = folder / "DevToolsActivePort"
        async with aiohttp.ClientSession() as session:
            async with asyncio.timeout(30):
                # A browser's file: nothing tells of it.
                while not (port.exists() and port.read_text().count("\n")):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                base = f"http://127.0.0.1:{port.read_text().split()[0]}"
                pages: list[dict[str, str]] = []
                while not pages:
                    async with session.get(f"{base}/json/list") as answer:
                        found = json.loads(await answer.text())
                    pages = [page for page in found if page["url"].startswith(url)]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"]) as socket:
                yield Tab(socket)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 15)


@pytest.mark.slow
def test_all_of_it_is_reached_and_used_with_keys(sqlite_url: str, tmp_path: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")

    async def main() -> None:
        clock = Clock(START)
        async with (
            server(sqlite_url, clock=clock) as (url, brain),
            httpx.AsyncClient(base_url=url) as http,
        ):
            await populated(Api(http, brain), clock)
            async with browser(program, tmp_path / "profile", f"{url}/?job=uid-1") as tab:
                await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
                await tab.until(
                    "document.querySelector('main') && document.readyState === 'complete'"
                )
                first = await tab.press("Tab")
                assert (first["href"], first["left"] >= 0) == ("#content", True)
                assert (await tab.press("Enter"))["id"] == "content"
                reached = [await tab.press("Tab") for _ in range(2)]
                assert [each["href"] for each in reached] == ["#plan-1", "#plan-2"]
                await tab.press("Enter")
                await tab.until("location.hash === '#plan-2'")
                # On to the end: nothing traps the focus, and one always sees where it is.
                while (now := await tab.press("Tab"))["tag"] != "body" and len(reached) < 60:
                    if now["name"] == "namespace":
                        await tab.call("Input.insertText", text="nowhere")
                    reached.append(now)
                assert now["tag"] == "body"
                assert all(each["shown"] for each in reached), reached
                assert {"namespace", "phase"} <= {each["name"] for each in reached}
                assert "summary" in {each["tag"] for each in reached}
                while (await tab.press("Tab"))["name"] != "namespace":
                    pass
                await tab.press("Enter")
                await tab.until("location.search.includes('namespace=nowhere')")

    run(main)

"""Chromium without a window, for the report: its measures here, and tests/browser."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FLAGS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
    --disable-background-networking --disable-component-update --disable-dev-shm-usage
    --force-device-scale-factor=1
""".split()


def installed() -> bool:
    """Say whether the browser and its driver are there."""
    return all(map(shutil.which, ("chromium", "chromedriver")))


@contextmanager
def browser() -> Iterator[Any]:
    """Start a Chromium that keeps what it logs and asks for; nothing of it stays."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


def size(driver: Any, width: int, height: int = 900) -> None:
    """Set the size of the page in pixels."""
    how = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)


def scheme(driver: Any, name: str) -> None:
    """Say that the user prefers light or dark."""
    feature = {"name": "prefers-color-scheme", "value": name}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def requests(driver: Any) -> list[str]:
    """Return the addresses that were asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def texts(driver: Any, selector: str) -> list[str]:
    """Return the texts of the elements that a selector finds."""
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    found: list[str] = driver.execute_script(script, selector)
    return found


def screenshot(driver: Any, path: Path) -> None:
    """Write a picture of the whole page."""
    width, height = driver.execute_script(
        "const e = document.documentElement; return [innerWidth, e.scrollHeight]"
    )
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    how = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", how)
    path.write_bytes(base64.b64decode(found["data"]))


def printed(driver: Any) -> bytes:
    """Return the page as it is printed, a PDF."""
    found = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    return base64.b64decode(found["data"])

"""A headless Chromium for tests, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "chromium and chromedriver are not installed; scripts/browser installs them"

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def start(profile: Path, *, width: int = 1400, height: int = 950) -> webdriver.Chrome:
    """A browser with an empty profile in `profile`; the caller quits it."""
    assert CHROMIUM is not None
    assert DRIVER is not None
    os.environ["SE_OFFLINE"] = "true"  # selenium would look for a driver of its own
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))

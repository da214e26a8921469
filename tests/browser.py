import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.end_to_end.program import free_port


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[webdriver.Chrome]:
    """Run Chromium with a fresh profile in that folder, until the end of the block."""
    driver, binary = shutil.which("chromedriver"), shutil.which("chromium")
    assert driver, "chromedriver is missing; Debian's package chromium-driver has it"
    assert binary, "chromium is missing; Debian's package chromium has it"
    options = Options()
    options.binary_location = binary
    common = ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking")
    for flag in (*common, f"user-data-dir={profile}", *flags):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver, port=free_port()))
    try:
        yield browser
    finally:
        browser.quit()

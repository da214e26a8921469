from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from exporter.simulator import SimulatorServer
from tests.browser import chromium
from tests.simulator.support import HandClock, make, plan, scenario

HOSTILE = "<img src=x onerror=alert(1)></code><b>bold</b>"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path) as browser:
        yield browser


def test_the_page_works(browser: webdriver.Chrome) -> None:
    """A scenario can be started, its event approved and a fault injected; hostile names stay text."""
    hostile = scenario(plan(type="Reboot", vms=("vm_0",)), name=HOSTILE)
    simulator = make(hostile, vm_name=HOSTILE, clock=HandClock())

    def text(selector: str) -> str:
        return browser.find_element(By.CSS_SELECTOR, selector).text

    def click(selector: str) -> None:
        browser.find_element(By.CSS_SELECTOR, selector).click()

    wait = WebDriverWait(browser, 60, ignored_exceptions=(StaleElementReferenceException,))
    with SimulatorServer(simulator) as server:
        browser.get(server.url)
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".scenario") and text("#count") == "1")
        wait.until(lambda _: HOSTILE in text("#events") and HOSTILE in text("#facts"))
        assert not browser.find_elements(By.CSS_SELECTOR, "img, b")

        click("#clear")
        wait.until(lambda _: text("#count") == "0" and text("#said").endswith(" UTC: All events cancelled."))
        click("button[aria-label='Start: Live migration']")
        wait.until(lambda _: text("#count") == "1" and text("#said").endswith("Started “Live migration”."))
        wait.until(lambda _: "starts in 15 min 0 s" in text(".event.Scheduled"))
        click(".event .acts button")
        wait.until(lambda _: "ends in 10 min 0 s" in text(".event") and "Started" in text(".event .badge"))

        Select(browser.find_element(By.NAME, "mode")).select_by_value("throttle")
        click("#fault button")
        wait.until(lambda _: text("#current span") == "Active: throttle until removed.")
        click("#remove-fault")
        wait.until(lambda _: text("#current span") == "No active fault.")
        click("#stop")
        wait.until(lambda _: "Everything stopped" in text("#said") and text("#count") == "0")
        wait.until(lambda _: text("#coming") == "")

        simulator.first_call_wait()
        wait.until(lambda _: "Service\non\n" in text("#facts"))
        click("#switch button")
        wait.until(lambda _: "Service\noff until a request" in text("#facts"))
        simulator.first_call_wait()
        wait.until(lambda _: "Service\non, still empty" in text("#facts") and text("#count") == "0")
        log = browser.get_log("browser")  # type: ignore[no-untyped-call]  # Selenium left it without types
        assert [entry for entry in log if entry["level"] == "SEVERE"] == []

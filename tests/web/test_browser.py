"""The landing page in a real browser: headless Chromium, driven by selenium."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from exporter.clock import SystemClock
from exporter.model.lifecycle import Life, Transition
from exporter.model.views import Demonstration, Minute, WorkView
from exporter.web.app import WebApp
from tests.browser import chromium
from tests.web.support import Scene, application, freeze, life, past, served, snapshot

HOSTILE = "</bdi><script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>" + "x" * 400
_TOLD = """
window.told = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (e) => told.push(kind + ": " + (e.message || e.violatedDirective || e.reason)));
"""

# Notes the answers to what the page asks from now on, and asks now.
_COUNTED = """
window.statuses = [];
window.asked = 0;
const ask = fetch;
window.fetch = async (...given) => {
  window.asked += 1;
  const answer = await ask(...given);
  window.statuses.push(answer.status);
  return answer;
};
document.dispatchEvent(new Event("visibilitychange"));
"""
# Pretends that the tab is hidden for a moment.
_HIDDEN = """
window.asked = 0;
Object.defineProperty(document, "hidden", { value: true, configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
delete document.hidden;
"""

# The contrast of every piece of text with what is behind it, as WCAG 2.1 works it out.
_CONTRASTS = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility() && node.tagName !== "SCRIPT")
  .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
  .map((node) => {
    const pair = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    return [node.tagName + "." + node.className + ": " + node.textContent.slice(0, 30),
      (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)];
  });
"""


@pytest.fixture(scope="module")
def berlin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _TOLD})
        yield browser


@pytest.fixture
def browser(berlin: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Lend the browser with an empty page and an empty log, and take what a test set away again."""
    berlin.get("about:blank")
    berlin.get_log("browser")  # type: ignore[no-untyped-call] # selenium leaves it untyped
    yield berlin
    berlin.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    berlin.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    berlin.get("about:blank")


class Stage(Scene):
    def __init__(self) -> None:
        clock = SystemClock()
        self.now = now = clock.now()
        own = freeze(event_type="Reboot", not_before=now + timedelta(minutes=12, seconds=30))
        hostile = freeze(event_id=HOSTILE, resources=("other", HOSTILE), description=HOSTILE, not_before=None)
        ended = past(freeze(event_id=HOSTILE), Transition.COMPLETED, ago=9000, at=now)
        super().__init__(
            snapshot(last_success=now, current=(life(own, at=now), life(hostile, at=now)), past=(ended,)),
            clock,
            reason=HOSTILE,
            polls=(Minute(now, 60), Minute(now, 59, 1, "timeout")),
            done=[
                WorkView("message", HOSTILE, Transition.SCHEDULED, "refused", now),
                WorkView("message", "chat", Transition.SCHEDULED, "delivered", now),
                WorkView("hook", "drain", Transition.SCHEDULED, "running", None),
            ],
        )

    def application(self, speed: float = 1.0) -> WebApp:
        return application(self, demonstration=Demonstration("Simulated events.", speed, self.now))

    def sixty(self) -> tuple[Life, ...]:
        names = (("WestNO_0",), ("other", HOSTILE))
        return tuple(
            life(
                freeze(
                    event_id=f"{number}",
                    resources=names[number % 2],
                    not_before=self.now + timedelta(minutes=number),
                ),
                at=self.now,
            )
            for number in range(60)
        )

    def change(self, **fields: Any) -> None:
        self.snapshot = msgspec.structs.replace(self.snapshot, **fields)


def _until(browser: webdriver.Chrome, condition: Callable[[webdriver.Chrome], Any]) -> Any:
    return WebDriverWait(browser, 60, 0.05).until(condition)


def _complaints(browser: webdriver.Chrome) -> list[str]:
    logged = browser.get_log("browser")  # type: ignore[no-untyped-call] # selenium leaves it untyped
    return [*browser.execute_script("return window.told"), *(entry["message"] for entry in logged)]


def _refresh(browser: webdriver.Chrome) -> None:
    browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")


def _text(browser: webdriver.Chrome, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def port(stage: Stage) -> Iterator[int]:
    with served(stage.application()) as port:
        yield port


def test_times_are_told_to_the_reader(browser: webdriver.Chrome, port: int, stage: Stage) -> None:
    """The time left goes down by the second, and beside UTC stands the time in the browser's own zone."""
    browser.get(f"http://127.0.0.1:{port}/")
    seen: list[int] = []

    def three(found: webdriver.Chrome) -> bool:
        match = re.fullmatch(r"in 12 min (\d+) s", _text(found, "#own .when time"))
        assert match
        if int(match[1]) not in seen:
            seen.append(int(match[1]))
        return len(seen) == 3

    _until(browser, three)
    assert seen == sorted(seen, reverse=True)
    starts = (stage.now + timedelta(minutes=12, seconds=30)).astimezone(ZoneInfo("Europe/Berlin"))
    shown = _text(browser, "#own .when small")
    assert re.search(rf"\d\d:\d\d:\d\d UTC \((\w+,? )?{starts:%H:%M} CES?T, your time\)", shown)


def test_the_time_left_is_by_the_clock_of_the_exporter(browser: webdriver.Chrome, port: int) -> None:
    """A browser whose clock is an hour fast shows the same."""
    fast = "{ const now = Date.now; Date.now = () => now() + 3600e3; }"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": fast})
    try:
        browser.get(f"http://127.0.0.1:{port}/")
        _until(browser, lambda b: _text(b, "#own .when time").startswith("in 12 min"))
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_the_time_left_in_a_demo(browser: webdriver.Chrome, stage: Stage) -> None:
    """It goes down as fast as simulated time passes: of 12 minutes nothing is left within a second."""
    with served(stage.application(1000.0)) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        _until(browser, lambda b: _text(b, "#own .when time") == "any moment now")


def test_hostile_text_stays_text(browser: webdriver.Chrome, port: int, stage: Stage) -> None:
    """Azure's fields open no element, run nothing, and break no policy, after a refresh either."""
    browser.get(f"http://127.0.0.1:{port}/")
    stage.change(last_error="x")
    _refresh(browser)
    _until(browser, lambda b: "Last error" in _text(b, "#watch"))
    for selector in ("#others dl", "#past td:nth-child(2)"):
        assert HOSTILE in _text(browser, selector)
    assert browser.find_elements(By.CSS_SELECTOR, "main :is(img, script, b, iframe, object)") == []
    assert _complaints(browser) == []


def test_it_asks_for_changes_while_it_is_visible(browser: webdriver.Chrome, port: int, stage: Stage) -> None:
    """An unchanged page is answered by 304, a hidden tab asks for nothing, and a change appears by itself.

    It replaces content, title and icon in place.
    """
    browser.get(f"http://127.0.0.1:{port}/")
    icon = browser.find_element(By.CSS_SELECTOR, "link[rel=icon]").get_attribute("href")
    browser.execute_script(_COUNTED)
    _until(browser, lambda b: 304 in b.execute_script("return window.statuses"))
    shown = browser.find_element(By.ID, "main")
    assert browser.execute_script(f"{_HIDDEN} return window.asked") == 0
    _refresh(browser)
    _until(browser, lambda b: b.execute_script("return window.statuses.at(-1)") == 304)
    assert shown.is_displayed()
    stage.change(up=False, current=(), last_error="connection refused")
    _until(browser, lambda b: b.title.startswith("BLIND"))
    assert browser.find_element(By.CSS_SELECTOR, "link[rel=icon]").get_attribute("href") != icon
    assert "connection refused" in _text(browser, "#watch")
    assert browser.execute_script("return window.asked") > 0
    assert _complaints(browser) == []


def test_a_selection_survives(browser: webdriver.Chrome, port: int, stage: Stage) -> None:
    """Who is copying an event's id keeps the selection; the title has the news meanwhile."""
    browser.get(f"http://127.0.0.1:{port}/")
    browser.execute_script("getSelection().selectAllChildren(document.querySelector('#own code'))")
    selected = browser.execute_script("return String(getSelection())")
    stage.change(current=())
    _refresh(browser)
    _until(browser, lambda b: b.title.startswith("Nothing pending"))
    assert browser.execute_script("return String(getSelection())") == selected
    browser.execute_script("getSelection().removeAllRanges()")
    _refresh(browser)
    _until(browser, lambda b: "No events are scheduled" in _text(b, "#own"))


@pytest.mark.parametrize("section", ["own", "past"])
def test_what_was_opened_stays_open(browser: webdriver.Chrome, port: int, stage: Stage, section: str) -> None:
    """A change closes neither a pending event nor the messages of a past one, and keeps the focus there."""
    stage.change(current=stage.sixty())
    browser.get(f"http://127.0.0.1:{port}/")
    browser.execute_script(_COUNTED)
    _until(browser, lambda b: 304 in b.execute_script("return window.statuses"))
    browser.find_element(By.CSS_SELECTOR, f"#{section} summary").click()
    stage.change(last_error="x")
    _refresh(browser)
    _until(browser, lambda b: "Last error" in _text(b, "#watch"))
    assert browser.find_element(By.CSS_SELECTOR, f"#{section} details").get_attribute("open") == "true"
    assert len(browser.find_elements(By.CSS_SELECTOR, "details[open]")) == 1
    assert browser.switch_to.active_element.tag_name == "summary"


def test_a_silent_exporter_makes_the_page_stale(browser: webdriver.Chrome, stage: Stage) -> None:
    """Page and title show an alarm while the exporter has an error or is gone, until it answers again."""
    with served(stage.application()) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        assert not browser.find_element(By.ID, "stale").is_displayed()
        good = stage.snapshot
        stage.snapshot = None  # type: ignore[assignment] # what no exporter does
        _refresh(browser)
        _until(browser, lambda b: "the exporter returned status 500" in b.find_element(By.ID, "stale").text)
        stage.snapshot = good
        _refresh(browser)
        _until(browser, lambda b: not b.find_element(By.ID, "stale").is_displayed())
        assert not browser.title.startswith("STALE")
    _refresh(browser)
    _until(browser, lambda b: b.find_element(By.ID, "stale").is_displayed())
    banner = browser.find_element(By.ID, "stale")
    silence = r"No update since \d\d:\d\d:\d\d \(\d+ s ago\): the exporter is not responding\."
    assert re.match(silence, banner.text)
    assert banner.get_attribute("role") == "alert"
    assert browser.title.startswith("STALE")


@pytest.mark.parametrize("width", [320, 1200])
def test_nothing_sticks_out(browser: webdriver.Chrome, port: int, stage: Stage, width: int) -> None:
    """From a small phone up there is no horizontal scrolling, however long the words and many the events."""
    stage.change(current=(*stage.snapshot.current, *stage.sixty()))
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"http://127.0.0.1:{port}/")
    root = "document.documentElement"
    content, view = browser.execute_script(f"return [{root}.scrollWidth, {root}.clientWidth]")
    assert content == view <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser: webdriver.Chrome, stage: Stage, scheme: str) -> None:
    """In both colour schemes every text has the contrast that WCAG's level AA asks for: 4.5."""
    started = life(freeze(event_status="Started", not_before=None), at=stage.now)
    other = life(freeze(resources=("other",)), at=stage.now)
    stage.change(up=False, last_error="x", current=(*stage.snapshot.current, started, other, *stage.sixty()))
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    with served(stage.application()) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        found = browser.execute_script(_CONTRASTS)
    assert len(found) > 40
    assert [pair for pair in found if pair[1] < 4.5] == []

"""`headrace ui` in a real browser, on a job that runs: it shows what the status says, follows an expansion and a rewind, and
survives a restart of the job. Texts of records are never markup, and the browser reports nothing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

import headrace as hr
from headrace import wiring
from headrace.adapters.http import operator_pages
from headrace.cli import kept_look
from headrace.cli.targets import Target
from headrace.cli.ui import pages
from headrace.core.metrics.phases import PHASES
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from support.fixtures import place_of
from support.world import Place, World

pytestmark = [pytest.mark.search, pytest.mark.timeout(120)]
SCRIPT = "<img src=x onerror=alert(1)>"
WAIT_MS = 15_000
QUICK = {"trigger_interval_ms": 20, "partition_check_interval_s": 0.2}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests do not wait a second for what is there already."""
    monkeypatch.setattr(operator_pages, "EVERY_S", 0.2)
    monkeypatch.setattr(kept_look, "FRESH_S", 0.1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """None where there is no Chromium."""
    chromium = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any, without_server: Callable[[str, str], NoReturn]) -> Iterator[Any]:
    """A page of a browser, and in `page.said` what the browser reported."""
    if browser is None:
        without_server("Chromium", "scripts/browser.sh installs it")
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(WAIT_MS)
    opened.said = []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    yield opened
    opened.close()


class Shop(World):
    """A job that counts by key, and what is done to it."""

    STREAMS: ClassVar = {"sales": 2, "out": 1, "bad": 1}
    KEYS: ClassVar = QUICK

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.made = self.app(dead_letter_stream=f"{self.name}-bad")
        sales = self.made.stream(f"{self.name}-sales", key=hr.String(), value=hr.String())
        sales = sales.filter(lambda one: 1 // len(one.value) >= 0)
        sales.group_by_key().count(store="counts").to_stream().to(f"{self.name}-out")
        self.job: Any = None

    def start(self) -> None:
        self.job = wiring.start(self.made, engine=InlineEngine(run_container))

    def records(self) -> int:
        found: int = self.job.status()["sub_topologies"]["source"]["records"]
        return found

    def send(self, *keys: str, value: str = "v") -> None:
        self.system.produce(f"{self.name}-sales", [(key, value) for key in keys], key=hr.String(), value=hr.String())

    def shown(self, *, port: int = 0, allow_changes: bool = False) -> Any:
        return pages(Target(self.name, wiring.config_of(self.made), self.made), "127.0.0.1", port, allow_changes=allow_changes)

    def close(self) -> None:
        if self.job is not None and self.job.is_running:
            self.job.stop()
        super().close()


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, place_of(request, getattr(request, "param", "log"))) as made:
        yield made


def records(page: Any) -> int:
    """What the table of sub-topologies says of `source`."""
    cells = page.locator("#subs tbody tr").first.locator("td").all_text_contents()
    return int(cells[3].replace(",", ""))


def confirm(page: Any) -> None:
    page.click("#confirm-yes")
    page.locator("#confirm").wait_for(state="hidden")


def until(look: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_MS / 1000
    while not look():
        assert time.monotonic() < deadline_s, look()
        time.sleep(0.1)


@pytest.mark.parametrize("shop", ["kafka"], indirect=True)
def test_the_page_follows_a_job_and_what_is_done_to_it(page: Any, shop: Shop) -> None:
    shop.start()
    shop.send("a", "a", SCRIPT)
    with shop.shown(allow_changes=True) as url:
        page.goto(url)
        page.locator("#running", has_text="running").wait_for()
        until(lambda: records(page) == shop.records() >= 3)  # on Kafka with the markers of transactions
        assert page.locator("#task-table tbody tr").count() == 2
        assert page.locator("#picture svg").count() == 1 and page.locator("#phases canvas").count() >= 1

        # The state by key, with the keyboard alone; a key that is markup is a text.
        page.locator("#key").focus()
        page.keyboard.type(SCRIPT)
        page.keyboard.press("Enter")
        page.locator("#entries td", has_text="1").first.wait_for()
        page.locator("#some").focus()
        page.keyboard.press("Enter")
        page.locator("#entries td", has_text=SCRIPT).wait_for()
        assert page.locator("#entries img").count() == 0

        # A record that fails is shown with its reason, and discarded.
        shop.send(SCRIPT, value="")
        page.locator("#letter-table td", has_text="ZeroDivisionError").wait_for()
        assert page.locator("#letters-note").text_content() == "1 open"
        page.fill('#letters-filter [name="reason"]', "SerdeError")
        page.press('#letters-filter [name="reason"]', "Enter")
        page.locator("#letters-note", has_text="0 of these, 1 open altogether").wait_for()
        assert page.locator("#letter-table td", has_text="ZeroDivisionError").count() == 0
        page.fill('#letters-filter [name="reason"]', "")
        page.press('#letters-filter [name="reason"]', "Enter")
        page.locator("#letter-table td", has_text="ZeroDivisionError").wait_for()
        page.locator("#task-table td", has_text="filter: ZeroDivisionError").wait_for()  # of its task the last error
        page.fill('#letters-form [name="ids"]', page.locator("#letter-table tbody td").first.text_content())
        page.select_option('#letters-form [name="action"]', "discard")
        page.press('#letters-form [name="ids"]', "Enter")
        page.locator("#confirm dd", has_text="ZeroDivisionError").first.wait_for()
        confirm(page)
        page.locator("#letter-table td", has_text="no dead letter").wait_for()

        # A count that the job cannot follow is refused; else it grows: the tasks with the keys read the new partitions.
        page.fill('form[data-what="expansion"] [name="partitions"]', "3")
        page.press('form[data-what="expansion"] [name="partitions"]', "Enter")
        page.locator("#confirm-text", has_text="breaks what reads it").wait_for()
        page.keyboard.press("Escape")
        page.fill('form[data-what="expansion"] [name="partitions"]', "4")
        page.press('form[data-what="expansion"] [name="partitions"]', "Enter")
        page.locator("#confirm dd", has_text=shop.name).first.wait_for()
        assert shop.system.describe_stream(f"{shop.name}-sales").partitions == 2, "it is a preview so far"
        confirm(page)
        page.locator("#history-table td", has_text="expansion").first.wait_for()
        page.locator("#task-table td", has_text="sales/3").wait_for()

        # A startpoint is set on the page, after its preview: what was read is read again.
        page.fill('form[data-what="startpoint"] [name="position"]', "earliest")
        page.press('form[data-what="startpoint"] [name="position"]', "Enter")
        page.locator("#confirm dd", has_text="the 6 offsets that are read again").first.wait_for()  # 4 records, 2 markers
        assert not page.locator("#startpoint-table td", has_text="earliest").count(), "it is a preview so far"
        confirm(page)
        page.locator("#startpoint-table td", has_text="applied").first.wait_for()
        until(lambda: records(page) == shop.records() >= 8)

        # What is refused is said, and nothing is done.
        page.fill('form[data-what="elasticity"] [name="factor"]', "3")
        page.press('form[data-what="elasticity"] [name="factor"]', "Enter")
        page.locator("#confirm-title", has_text="refused").wait_for()
        page.keyboard.press("Escape")

        # The job is stopped by a request, as it may run anywhere; and started again.
        page.click('form[data-what="stop"] button')
        page.locator("#confirm dd", has_text=shop.name).first.wait_for()
        assert shop.job.is_running, "it is a preview so far"
        confirm(page)
        page.locator("#running", has_text="not running").wait_for()
        shop.job.wait(30)
        assert shop.job.was_stopped
        shop.start()
        page.locator("#running.good").wait_for()
        shop.send("a")
        until(lambda: 1 <= records(page) == shop.records() < 4)
    page.locator("#connection", has_text="cut off").wait_for()
    with shop.shown(port=int(url.rpartition(":")[2])):  # the server comes back: the page continues without a reload
        page.locator("#connection", has_text="kept fresh").wait_for()
        page.locator("#running.good").wait_for()
    told = [text for text in page.said if "ERR_" not in text and "Failed to load" not in text]  # of the server that has ended
    assert told == [], "no error, and nothing that the policy has refused"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (380, "light")])
def test_it_fits_where_it_is_shown(page: Any, shop: Shop, width: int, scheme: str) -> None:
    """Also for an application that has not run yet; then it fills when it has."""
    with shop.shown() as url:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        page.goto(url)
        page.locator("#problem", has_text="has not run there yet").wait_for()
        page.locator("#letters-note", has_text="0 open").wait_for()
        shop.start()
        page.locator("#running.good").wait_for()
        assert page.locator("#changes").is_hidden()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "only tables scroll sideways"


PLACES = """() => [...document.querySelectorAll("#subs, #streams, #task-table")].map((table) => [
  table.offsetHeight, ...[...table.querySelectorAll("th, td")].map((cell) => cell.offsetLeft)])"""


def test_it_asks_again_after_a_refusal_stays_where_it_is_and_says_loudly_what_has_stopped(page: Any, shop: Shop) -> None:
    shop.start()
    with shop.shown() as url:
        until(lambda: json.loads(page.request.get(f"{url}/api/overview").text()).get("status"))
        found = page.request.get(f"{url}/api/overview").json()
        source, task = found["status"]["sub_topologies"]["source"], found["tasks"][0]
        is_refused = True

        def answered(route: Any) -> None:
            if is_refused:
                route.fulfill(status=503, json={"error": "too many"})
            else:
                route.fulfill(content_type="text/event-stream", body=f"retry: 100\ndata: {json.dumps(found)}\n\n")

        page.route("**/api/events", answered)
        page.goto(url)
        page.locator("#connection.alarm", has_text="cut off").wait_for()
        assert page.locator("#running").text_content() == "not known"
        is_refused = False
        source |= {"lag": 0, "waiting_for": "new records"}
        page.locator("#subs td", has_text="new records").wait_for()

        # Longer texts and numbers move nothing.
        before = page.evaluate(PLACES)
        source |= {"lag": 123_456, "waiting_for": "round 12345, 1:source:12345 in messages"}
        task |= {"lag": 123_456, "restoring": {"done_bytes": 1, "total_bytes": 3, "left_s": 1234.56}}
        page.locator("#subs td", has_text="round 12345").wait_for()
        page.locator("#task-table td", has_text="restoring 33 %, 21 min left").wait_for()
        assert page.evaluate(PLACES) == before

        source["stopped_by"] = f"ValueError: {SCRIPT}"
        page.locator("#alarms li.alarm", has_text=f"source has stopped: ValueError: {SCRIPT}").wait_for()
        assert page.locator("#alarms img").count() == 0


def test_the_rounds_of_before_the_page_was_opened_are_shown_by_phase(page: Any, shop: Shop) -> None:
    """Also of a job that is idle, or has ended: each once, and nothing in between. On a dark page the topology is dark."""
    shop.start()
    for number in range(3):
        shop.send("a")
        until(lambda: shop.records() == number + 1)  # noqa: B023
    shop.job.stop()
    page.emulate_media(color_scheme="dark")
    with shop.shown() as url:
        page.goto(url)
        page.locator("#running", has_text="not running").wait_for()
        page.locator("#phases canvas").first.wait_for()
        legend = page.locator("#phases .u-legend").text_content()
        assert all(f"{phase}, ms" in legend for phase in PHASES)
        over = page.locator("#phases .u-over").bounding_box()
        page.mouse.move(over["x"] + over["width"] * 2 / 10, over["y"] + 50)  # ten places, of which three are filled
        page.locator("#phases .u-value", has_text=", 1 records").wait_for()
        commits = page.locator("#task-table tbody tr").first.locator("td").nth(10).text_content()
        assert commits.startswith("20"), "the last commit, of a job that has ended"
        paper = page.locator(".picture .paper").evaluate("(one) => getComputedStyle(one).fill")
        assert paper != "rgb(255, 255, 255)"
    assert page.said == []


def test_a_connection_that_has_become_silent_is_made_again(page: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser does not notice where a connection is there and nothing comes: after 20 s the page asks again."""
    shop.start()
    monkeypatch.setattr(operator_pages, "EVERY_S", 3_600)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/api/events") else None)
    page.clock.install()
    with shop.shown() as url:
        page.goto(url)
        page.locator("#connection", has_text="kept fresh").wait_for()
        page.clock.run_for(19_000)
        assert len(asked) == 1
        page.clock.run_for(2_000)
        until(lambda: len(asked) == 2)
        page.locator("#connection", has_text="kept fresh").wait_for()
    assert page.said == []


# Of each text that is seen, its colour and that behind it: (contrast by WCAG 2, what it has to be, the text).
CONTRASTS = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = (one) => (one <= 10 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map(linear);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parsed(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].filter((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own.length || !element.checkVisibility() || element.closest("svg, :disabled")) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const [a, b] = [luminance(parsed(style.color)), luminance(behind(element))];
    const is_large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), is_large ? 3 : 4.5, own[0].textContent.trim()]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_told_from_what_is_behind_it(page: Any, shop: Shop, scheme: str) -> None:
    """By the contrast that WCAG 2 asks for at level AA; also of what is shown of faults, and of a dialog."""
    shop.start()
    page.emulate_media(color_scheme=scheme)
    with shop.shown(allow_changes=True) as url:
        shop.send("a", value="")
        page.goto(url)
        page.locator("#letter-table td", has_text="ZeroDivisionError").wait_for()
        seen = page.evaluate(CONTRASTS)
        page.fill('form[data-what="startpoint"] [name="position"]', "earliest")
        page.press('form[data-what="startpoint"] [name="position"]', "Enter")
        page.locator("#confirm-text dd").first.wait_for()
        seen += page.evaluate(CONTRASTS)
        page.keyboard.press("Escape")
    page.locator("#connection", has_text="cut off").wait_for()
    seen += page.evaluate(CONTRASTS)
    assert len({text for *_, text in seen}) > 50
    assert [one for one in seen if one[0] < one[1]] == []

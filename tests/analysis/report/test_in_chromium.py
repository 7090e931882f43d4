"""The page in a real browser, with real keys and clicks: nothing said, nothing fetched, nothing wider than it is."""

from __future__ import annotations

import gzip
import json
import re
import zlib

import polars as pl
import pytest

from analysis.characterize import characterize
from analysis.loaders.synthetic import synthesize
from analysis.report import write_comparison, write_report
from tests.analysis.report.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)")
TABLE = "#published-1 table.sortable"


@pytest.fixture(scope="module")
def traces():
    return [synthesize(like=like, num_jobs=300, seed=2) for like in ("philly", "venus", "kalos")]


@pytest.fixture(scope="module")
def page(tmp_path_factory, traces):
    return write_report(traces[0], tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def compared(tmp_path_factory, traces):
    return write_comparison(traces, tmp_path_factory.mktemp("compared") / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(params=["page", "compared"])
def either(request):
    return request.getfixturevalue(request.param)


def test_it_opens_without_a_console_message_and_fetches_nothing(browser, either):
    browser.open(either.as_uri())
    said = [event for event in browser.events if event[0] in {"Log.entryAdded", "Runtime.consoleAPICalled"}]
    failed = [event for event in browser.events if event[0] in {"Runtime.exceptionThrown", "Network.loadingFailed"}]
    assert said == failed == []
    fetched = [event["request"]["url"] for name, event in browser.events if name == "Network.requestWillBeSent"]
    assert fetched == [either.as_uri()]
    assert browser.run("document.querySelectorAll('svg').length") >= 5
    assert browser.run("document.fonts.size + performance.getEntriesByType('resource').length") == 0


def test_the_policy_of_the_page_forbids_to_fetch(browser, page):
    browser.open(page.as_uri())
    reason = browser.run("fetch('https://example.org/').then(() => 'came', error => String(error))")
    assert "TypeError" in reason
    refused = [event["entry"]["text"] for name, event in browser.events if name == "Log.entryAdded"]
    assert any("Content Security Policy" in text for text in refused) or browser.run(
        "[...document.querySelectorAll('meta')].some(m => m.httpEquiv === 'Content-Security-Policy')"
    )


def test_on_a_telephone_what_a_row_is_called_is_neither_cut_nor_a_tower_of_letters(browser, compared):
    browser.open(compared.as_uri(), width=400)
    cells = browser.run(
        "[...document.querySelectorAll('.many td:first-child')].filter(c => c.offsetParent)"
        ".map(c => [c.scrollWidth - c.clientWidth, c.clientWidth])"
    )
    assert len(cells) > 20
    for hidden, width in cells:
        assert hidden <= 1
        assert 60 <= width <= 0.4 * 400 + 30


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1600])
def test_it_fits_a_telephone_and_a_wide_screen(browser, either, width, dark):
    browser.open(either.as_uri(), width=width, dark=dark)
    # With every table opened too: a wide one scrolls in its own box.
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    boxes = browser.run(
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect())"
        ".map(r => [r.left, r.right, r.height])"
    )
    assert len(boxes) >= 5
    for left, right, height in boxes:
        assert 0 <= left < right <= width
        assert right - left > 250
        assert height > 100


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_legible_on_its_ground(browser, page, dark):
    """WCAG 2.2, 1.4.3: a contrast of at least 4.5 of text and ground, also inside figures."""
    browser.open(page.as_uri(), dark=dark)
    colours = browser.run(
        """[...document.querySelectorAll('p, td, th, a, h1, h2, h3, li, summary, dt, dd, svg text, button')].map(e => {
            let ground = e;
            const opaque = x => !['rgba(0, 0, 0, 0)', 'transparent'].includes(getComputedStyle(x).backgroundColor);
            while (ground.parentElement && !opaque(ground)) ground = ground.parentElement;
            const style = getComputedStyle(e);
            return [e.closest('svg') ? style.fill : style.color, getComputedStyle(ground).backgroundColor];
        })"""
    )
    seen = {(front, back) for front, back in colours}
    assert len(seen) >= 4
    for front, back in seen:
        assert contrast(front, back) >= 4.5, (front, back)


def contrast(front, back):
    def luminance(text):
        parts = [int(part) / 255 for part in re.findall(r"\d+", text)[:3]]
        r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("rgb(255, 255, 255)", "rgb(0, 0, 0)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


def test_the_keyboard_reaches_every_control_in_order(browser, page):
    browser.open(page.as_uri())
    controls = browser.run(
        """(() => {
            const all = document.querySelectorAll('a[href], button, summary, [tabindex="0"]');
            window.controls = [...all].filter(e => e.checkVisibility() && e.getClientRects().length);
            return window.controls.length;
        })()"""
    )
    assert controls > 50
    reached = []
    for _ in range(controls):
        browser.tab()
        reached.append(browser.run("window.controls.indexOf(document.activeElement)"))
    assert reached == list(range(controls))


def test_a_focused_control_is_seen(browser, page):
    browser.open(page.as_uri())
    browser.tab()
    assert browser.run("document.activeElement.textContent") == "Skip to the report"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.tab()
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def column(browser, place):
    """Keys and texts of a column of the first sortable table, as they stand."""
    rows = browser.run(
        f"[...document.querySelector('{TABLE}').tBodies[0].rows].map(r => [r.cells[{place}].dataset.k ?? null, "
        f"r.cells[{place}].textContent])"
    )
    return [text if key is None else key for key, text in rows]


def test_a_table_is_sorted_by_the_keyboard_and_says_so(browser, compared):
    browser.open(compared.as_uri())
    heads = browser.run(f"[...document.querySelector('{TABLE}').tHead.rows[0].cells].map(c => c.textContent)")
    place = heads.index("median duration")
    before = column(browser, place)
    known = sorted(float(key) for key in before if key)
    browser.run(f"document.querySelector('{TABLE}').tHead.rows[0].cells[{place}].querySelector('button').focus()")
    for direction, expected in (("ascending", known), ("descending", known[::-1])):
        browser.press("Enter", code=13, text="\r")
        after = column(browser, place)
        assert [float(key) for key in after[: len(known)]] == expected
        # What is not known comes last either way.
        assert after[len(known) :] == [""] * (len(before) - len(known))
        stated = browser.run(
            f"[...document.querySelector('{TABLE}').tHead.rows[0].cells].map(c => c.getAttribute('aria-sort'))"
        )
        assert stated == [direction if at == place else "none" for at in range(len(heads))]
    browser.press(" ", code=32, text=" ")
    assert column(browser, place) == before


def test_text_and_buckets_are_sorted_as_people_read_them(browser, page):
    browser.open(page.as_uri())
    got = browser.run(
        """(() => {
            const table = [...document.querySelectorAll('table.sortable')]
                .find(t => ['weighted by', 'median'].every(word => t.tHead.textContent.includes(word)));
            table.tHead.rows[0].cells[0].querySelector('button').click();
            return [...table.tBodies[0].rows].map(r => r.cells[0].textContent);
        })()"""
    )
    order = ["all GPU jobs", "CPU job", "<1 GPU", "1 GPU", "2 GPUs", "3-4 GPUs", "5-8 GPUs", ">8 GPUs"]
    assert got == sorted(got, key=order.index)
    assert len(set(got)) > 3


def test_a_definition_is_shown_on_hover_and_on_focus_and_goes_with_escape(browser, page):
    browser.open(page.as_uri())
    shown = "getComputedStyle(document.querySelector('button.def + .tip')).display"
    assert browser.run(shown) == "none"
    browser.hover("button.def")
    assert browser.run(shown) == "block"
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert browser.run(shown) == "none"
    browser.run("document.querySelector('button.def').focus()")
    assert browser.run(shown) == "block"
    assert len(browser.run("document.querySelector('button.def + .tip').innerText")) > 30
    browser.press("Escape", code=27)
    assert browser.run(shown) == "none"


def test_what_a_heading_means_is_shown_on_hover_and_on_focus(browser, page):
    browser.open(page.as_uri())
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    head = "table.sortable button.sort[data-def]"
    meaning = browser.run(f"document.querySelector('{head}').dataset.def")
    tip = "document.querySelector('#floating').hidden ? '' : document.querySelector('#floating').textContent"
    assert browser.run(tip) == ""
    browser.hover(head)
    assert browser.run(tip) == meaning
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert browser.run(tip) == ""
    # From the top of the page: the browser scrolls it into view.
    browser.run("scrollTo({top: 0, behavior: 'instant'})")
    browser.run(f"document.querySelector('{head}').focus()")
    browser.run("new Promise(done => setTimeout(done, 1000))")
    assert browser.run(tip) == meaning
    inside = browser.run(
        "(() => {const r = document.querySelector('#floating').getBoundingClientRect(); "
        "return r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.bottom <= innerHeight})()"
    )
    assert inside


def test_a_download_gives_the_bytes_of_the_csv(browser, page, traces, tmp_path):
    browser.open(page.as_uri())
    tables = characterize(traces[0])
    for name in ("gpu_demand", "duration_cdf"):
        selector = f'a[download^="{name}.csv"]'
        got = browser.download(selector, tmp_path / name)
        data = got.read_bytes()
        data = gzip.decompress(data) if got.suffix == ".gz" else data
        assert data == tables[name].write_csv().encode()
    assert (
        pl.read_csv(tmp_path / "gpu_demand" / "gpu_demand.csv")["num_jobs"].sum()
        == tables["gpu_demand"]["num_jobs"].sum()
    )


def test_without_scripts_all_is_there(browser, page):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page.as_uri())
        snapshot = json.dumps(browser.send("DOMSnapshot.captureSnapshot", computedStyles=[]))
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    for text in ("In short", "Durations", "What is counted", "gpu_demand.csv"):
        assert text in snapshot


def test_it_prints_every_figure_and_definition(browser, page, tmp_path):
    browser.open(page.as_uri())
    browser.send("Emulation.setEmulatedMedia", media="print")
    tips = browser.run("[...document.querySelectorAll('.tip')].map(t => getComputedStyle(t).display)")
    glossary = browser.run("document.querySelector('dl.glossary').getBoundingClientRect().height")
    controls = browser.run(
        "[...document.querySelectorAll('.def, .files:not(.sources), .skip')].filter(e => e.checkVisibility()).length"
    )
    browser.send("Emulation.setEmulatedMedia", media="")
    assert set(tips) == {"block"}
    assert glossary > 50
    assert controls == 0
    paper = browser.paper(tmp_path / "report.pdf").read_bytes()
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 40
    assert paper.count(b"FlateDecode") > 3
    assert zlib.decompress(re.search(rb"FlateDecode.*?stream\r?\n(.*?)endstream", paper, re.DOTALL)[1])

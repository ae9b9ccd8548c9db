"""The explorer in a real browser: paste, drop, refusals, keyboard, themes, a phone, two tables."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

import dspark
from dspark.compile import compile_text
from dspark.engines import ask_engines
from dspark.explorer import explorer_page
from dspark.parity_compile import shipped_packs
from tests.dspark.test_fuzz import CORPUS
from tests.support import browser
from tests.support.configs import BASE, with_keys

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (browser.CHROMIUM and browser.DRIVER), reason=browser.MISSING),
]

TABLE = dspark.compile_table()
REFUSED = with_keys(BASE, model_type="llama")


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = browser.start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "rules.html"
    file.write_text(explorer_page(TABLE), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def page(chrome: webdriver.Chrome, address: str) -> Iterator[webdriver.Chrome]:
    chrome.get(address)
    yield chrome
    # A script that failed, or anything that the page tried to load, is in the browser's log.
    assert [] == chrome.get_log("browser")


def find(page: webdriver.Chrome, selector: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, selector)


def text(page: webdriver.Chrome, selector: str) -> str:
    return find(page, selector).text


def wait_for(page: webdriver.Chrome, words: str, selector: str = "#answer") -> str:
    WebDriverWait(page, 10).until(lambda _: words in text(page, selector))
    return text(page, selector)


def paste(page: webdriver.Chrome, content: str) -> None:
    """As Ctrl+V does: the whole text at once, and an input event."""
    page.execute_script(
        "const box = document.getElementById('config'); box.focus();"
        "document.execCommand('insertText', false, arguments[0]);",
        content,
    )


def drop(page: webdriver.Chrome, data: bytes, name: str) -> None:
    page.execute_script(
        """
        const bytes = Uint8Array.from(atob(arguments[0]), (letter) => letter.charCodeAt(0));
        const carried = new DataTransfer();
        carried.items.add(new File([bytes], arguments[1]));
        for (const kind of ["dragover", "drop"]) {
          document.body.dispatchEvent(
            new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
        }
        """,
        base64.b64encode(data).decode(),
        name,
    )


def lit(page: webdriver.Chrome) -> list[str]:
    """The nodes of the graph that are lit, by column."""
    nodes = page.execute_script(
        "return [...document.querySelectorAll('#graph .node.on')].map((node) =>"
        " [node.getAttribute('transform'), node.dataset.node])"
    )
    return [name for _, name in sorted(nodes, key=lambda node: float(node[0][10:].split(",")[0]))]


def press(page: webdriver.Chrome, *keys: str) -> None:
    ActionChains(page).send_keys(*keys).perform()


def focused(page: webdriver.Chrome) -> str:
    return str(page.execute_script("return document.activeElement.id"))


def test_a_pasted_config_lights_its_path(page: webdriver.Chrome) -> None:
    assert [] == lit(page)

    paste(page, json.dumps(BASE))

    answer = wait_for(page, "lane qwen3-dspark")
    assert "✓ lane qwen3-dspark" in answer
    assert "L001 qwen3-dspark-native" in answer
    path = lit(page)
    assert ["n0", "L001"] == [path[0], path[-1]]
    assert len(TABLE.facts) + 1 == len(path)
    labels = {label for label in text(page, "#graph .labels").splitlines() if label}
    assert {"1. flat", "2. ABSENT", "3. Qwen3DSparkModel", "4. qwen3", "5. positive"} == labels
    assert "markov_rank = 256" in text(page, "#reasons")


def test_what_each_engine_would_do_is_shown(page: webdriver.Chrome) -> None:
    if not shipped_packs():
        pytest.skip("no parity pack ships yet")
    assert "" == text(page, "#engines")

    paste(page, json.dumps(BASE))

    shown = wait_for(page, "What each engine would do", "#engines")
    for engine in ask_engines(shipped_packs(), BASE, ""):
        assert f"{engine.pack.engine} {engine.pack.version}" in shown
        assert f"{engine.outcome}" in shown
        assert engine.best.answer.rule.id in shown
        assert engine.best.typed("DRAFT") in shown
    find(page, "#clear").click()
    assert "" == text(page, "#engines")


def test_a_refusal_says_why_and_what_kept_the_nearest_rules_away(page: webdriver.Chrome) -> None:
    paste(page, json.dumps(REFUSED))

    answer = wait_for(page, "R018")
    assert "✕ refused" in answer
    assert (
        "Qwen3DSparkModel is read with Qwen3 layers, and this file's model_type is llama" in answer
    )
    assert "Help: set model_type to qwen3" in answer
    reasons = text(page, "#reasons")
    assert "L001 qwen3-dspark-native ✓ lane qwen3-dspark" in reasons
    assert "model_type is llama; it asks for qwen3" in reasons


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"block_size": 7,}', "not JSON at line 1, column 17: a trailing comma"),
        ('{"markov_rank": 1,\n "markov_rank": 0}', "written a second time at line 2, column 2"),
        ("[]", "must be a JSON object, and it is an array"),
    ],
)
def test_bad_json_is_refused_where_it_is_bad(
    page: webdriver.Chrome, content: str, words: str
) -> None:
    paste(page, content)

    assert "! unreadable" in wait_for(page, words)
    assert [] == lit(page)
    assert "" == text(page, "#reasons")


def test_a_dropped_file_is_read_byte_by_byte(page: webdriver.Chrome) -> None:
    drop(page, json.dumps(BASE).encode(), "config.json")
    wait_for(page, "lane qwen3-dspark")
    assert json.loads(str(find(page, "#config").get_property("value"))) == BASE

    drop(page, b'{"name": "\xe9"}', "config.json")
    wait_for(page, "not UTF-8: byte 0xe9 at offset 10")

    drop(page, b"GGUF\x03\x00\x00\x00", "draft.gguf")
    wait_for(page, "R033 gguf-draft")

    drop(page, b" " * 1_200_000, "config.json")
    wait_for(page, "larger than 1048576 bytes")


def test_a_file_is_opened(page: webdriver.Chrome, repository: Path) -> None:
    corpus = repository / "tests/corpus/RedHatAI__Qwen3.6-35B-A3B-speculator.dspark/config.json"
    assert corpus.is_file()

    page.execute_script("document.getElementById('file').hidden = false")
    find(page, "#file").send_keys(str(corpus))

    wait_for(page, "L003 qwen3-dspark-speculators")


def test_what_is_pasted_is_never_markup(page: webdriver.Chrome) -> None:
    evil = "<img src=x onerror=alert(1)>`<b>"
    paste(page, json.dumps(with_keys(BASE, architectures=[evil], model_type=evil)))

    assert evil.replace("`", "") in wait_for(page, "R000").replace("`", "")
    assert 0 == len(page.find_elements(By.CSS_SELECTOR, "#answer img, #answer b, #reasons img"))


def test_the_keyboard_reaches_everything(page: webdriver.Chrome) -> None:
    press(page, Keys.TAB, Keys.ENTER)
    assert "config" == focused(page)
    paste(page, json.dumps(BASE))
    wait_for(page, "lane qwen3-dspark")

    seen = []
    while focused(page) != "graph" and len(seen) < 30:
        press(page, Keys.TAB)
        seen.append(focused(page))
    assert {"open", "clear", "example", "zoom-in", "zoom-path", "graph"} <= set(seen)

    # The rule that decides has the focus; left of it is the last question on the path.
    press(page, Keys.ARROW_LEFT)
    assert "asks markov" in text(page, "#graph-node")
    assert "Step 5 of this config's path" in text(page, "#graph-node")
    press(page, Keys.ARROW_RIGHT)
    assert "L001 qwen3-dspark-native" in text(page, "#graph-node")
    press(page, Keys.ENTER)
    assert "rule-L001" == focused(page)
    assert find(page, "#rules").is_displayed()


def test_the_graph_zooms_and_moves_by_keys_buttons_and_dragging(page: webdriver.Chrome) -> None:
    def view() -> list[float]:
        # Selenium asks for attributes in lower case, and SVG has capitals in some.
        box = page.execute_script("return document.getElementById('graph').getAttribute('viewBox')")
        return [float(part) for part in str(box).split()]

    whole = view()
    find(page, "#graph").send_keys("+")
    assert view()[2] < whole[2]
    find(page, "#graph").send_keys("0")
    assert whole == view()
    find(page, "#graph").send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert whole[0] < view()[0]
    assert whole[2] == view()[2]
    find(page, "#zoom-all").click()
    ActionChains(page).drag_and_drop_by_offset(find(page, "#graph"), -80, -40).perform()
    assert whole[0] < view()[0]
    assert whole[1] < view()[1]
    find(page, "#zoom-out").click()
    assert whole[2] < view()[2]


def test_tabs_are_walked_with_arrows(page: webdriver.Chrome) -> None:
    find(page, "#tab-decide").send_keys(Keys.ARROW_RIGHT)

    assert "tab-rules" == focused(page)
    assert "true" == find(page, "#tab-rules").get_attribute("aria-selected")
    assert find(page, "#rules").is_displayed()
    assert not find(page, "#decide").is_displayed()
    press(page, Keys.END)
    assert "dspark explore --rules NEW.yaml --old OLD.yaml" in text(page, "#changes")


def test_the_rules_are_filtered(page: webdriver.Chrome) -> None:
    find(page, "#tab-rules").click()
    total = len(TABLE.rules) + len(TABLE.messages())
    assert f"{total} of {total} rules" == text(page, "#rule-count")

    find(page, "#filter").send_keys("Markov head qwen3")
    names = [row.text.split()[0] for row in page.find_elements(By.CSS_SELECTOR, "#rules tbody tr")]
    assert {"R015"} <= set(names)
    assert "R033" not in names
    find(page, "#outcome").send_keys("takes")
    left = [row.text for row in page.find_elements(By.CSS_SELECTOR, "#rules tbody tr")]
    assert left
    assert all("✓ lane" in row for row in left)
    find(page, "#filter").send_keys(" zzz")
    assert "No rule has all these words." == text(page, "#rule-table")


CONTRAST = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
  .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return parse(getComputedStyle(document.documentElement).backgroundColor);
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !node.getClientRects().length) continue;
  if (["SCRIPT", "STYLE", "OPTION", "title"].includes(node.tagName)) continue;
  const style = getComputedStyle(node);
  const drawn = node instanceof SVGElement;
  const [one, two] = [parse(drawn ? style.fill : style.color), ground(node)].map(light);
  const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  found.push([ratio, walker.currentNode.data.trim().slice(0, 40)]);
}
return found;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast_in_both_themes(page: webdriver.Chrome, theme: str) -> None:
    while theme not in text(page, "#theme"):
        find(page, "#theme").click()
    for config in (BASE, REFUSED, {"architectures": 3}):
        find(page, "#clear").click()
        paste(page, json.dumps(config))
        wait_for(
            page, {"llama": "R018", "qwen3": "L001"}.get(str(config.get("model_type")), "E102")
        )
        low = [entry for entry in page.execute_script(CONTRAST) if entry[0] < 4.5]
        assert [] == low
    find(page, "#tab-rules").click()
    texts = page.execute_script(CONTRAST)
    assert len(texts) > 300
    assert [] == [entry for entry in texts if entry[0] < 4.5]


def ground(page: webdriver.Chrome) -> str:
    return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_the_theme_follows_the_system_until_it_is_chosen(page: webdriver.Chrome) -> None:
    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer("light")
    light = ground(page)
    prefer("dark")
    dark = ground(page)
    assert light != dark

    find(page, "#theme").click()
    assert "Theme: light" == text(page, "#theme")
    assert light == ground(page)
    find(page, "#theme").click()
    prefer("light")
    assert dark == ground(page)


def test_nothing_is_cut_off_on_a_phone(page: webdriver.Chrome) -> None:
    def resize(width: int) -> None:
        size = {"width": width, "height": 780, "deviceScaleFactor": 2, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    resize(360)
    try:
        paste(page, json.dumps(REFUSED))
        wait_for(page, "R018")
        for tab in ("#tab-decide", "#tab-rules", "#tab-changes"):
            find(page, tab).click()
            assert 360 == page.execute_script("return document.documentElement.scrollWidth")
        find(page, "#tab-decide").click()
        # The leaf that decides is on the screen, and large enough to be read.
        size = page.execute_script(
            "const box = document.querySelector('#graph .node.on.refused text')"
            ".getBoundingClientRect(); return [box.left, box.right, box.height]"
        )
        assert 0 <= size[0] < size[1] <= 360
        assert 6 < size[2]
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def edited() -> dspark.Table:
    """The shipped table as it would be without one architecture and with other words."""
    shipped = Path(TABLE.file).read_text(encoding="utf-8")
    older = shipped.replace(", EagleMistralLarge3ForCausalLM]", "]").replace(
        'help: "serve it with SGLang, method eagle, or ask `dspark handoff vllm` for the command"',
        'help: "serve it with vLLM"',
    )
    case = "      - hit: {architectures: [EagleMistralLarge3ForCausalLM], model_type: mistral}\n"
    assert case in older
    return compile_text(older.replace(case, "").encode(), "older.yaml")


def test_two_tables_side_by_side(chrome: webdriver.Chrome, tmp_path: Path) -> None:
    older = edited()
    file = tmp_path / "changes.html"
    file.write_text(explorer_page(TABLE, older), encoding="utf-8")
    chrome.get(file.as_uri())
    find(chrome, "#tab-changes").click()

    shown = text(chrome, "#changes")
    assert f"drafts {older.version} → drafts {TABLE.version}" in shown
    row = find(chrome, "#changes tbody tr").text
    assert "EagleMistralLarge3ForCausalLM" in row
    assert row.index("R000 unknown-architecture") < row.index("R027 eagle")
    assert "R027 eagle edited" in shown
    assert "when (changed)" in shown
    assert "help (changed)" in shown
    marks = [mark.text for mark in chrome.find_elements(By.CSS_SELECTOR, "#changes mark")]
    assert "EagleMistralLarge3ForCausalLM" in marks
    assert "EagleLlamaForCausalLM" not in marks

    find(chrome, "#changes tbody button").click()

    answer = wait_for(chrome, "R027 eagle")
    assert "Changed. The older table: ✕ refused R000 unknown-architecture" in answer
    assert [] == chrome.get_log("browser")


def test_the_browser_decides_the_corpus_as_python_does(page: webdriver.Chrome) -> None:
    for file in CORPUS:
        found: dict[str, Any] = page.execute_script(
            "const bytes = Uint8Array.from(atob(arguments[0]), (one) => one.charCodeAt(0));"
            "const { rule, refusal } = decideBytes(bytes, DATA.table, DATA.constants);"
            "return { id: rule.id, lane: rule.lane, refusal };",
            base64.b64encode(file.read_bytes()).decode(),
        )
        decision = dspark.route(file)
        assert (decision.rule_id, decision.lane) == (found["id"], found["lane"]), file
        if decision.refusal is not None and "did_you_mean" not in decision.rule.refuse.fields:  # type: ignore[union-attr]
            assert decision.refusal._asdict() == found["refusal"]

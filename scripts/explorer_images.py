"""Takes the pictures in docs/explorer.md: `.venv/bin/python -m scripts.explorer_images`.

Needs chromium and chromedriver (scripts/browser), and Pillow to make them small.
"""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium.webdriver import Chrome

import dspark
from dspark.compile import compile_text
from dspark.explorer import explorer_page
from tests.support import browser

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TRY = (
    "const box = document.getElementById('example'); box.value = arguments[0];"
    "box.dispatchEvent(new Event('change'));"
)


def main() -> None:
    """Writes one picture for each view."""
    table = dspark.compile_table()
    text = Path(table.file).read_text(encoding="utf-8")
    older = text.replace("MedusaModel, MedusaLlamaForCausalLM]", "MedusaModel]", 1).replace(
        "      - hit: {architectures: [MedusaLlamaForCausalLM], model_type: llama}\n", "", 1
    )
    with tempfile.TemporaryDirectory() as folder:
        page, changes = Path(folder, "page.html"), Path(folder, "changes.html")
        page.write_text(explorer_page(table), encoding="utf-8")
        both = explorer_page(table, compile_text(older.encode(), "older.yaml"))
        changes.write_text(both, encoding="utf-8")
        driver = browser.start(Path(folder, "profile"), width=1280, height=900)
        try:
            _take(driver, page.as_uri(), changes.as_uri())
        finally:
            driver.quit()


def _take(driver: Chrome, page: str, changes: str) -> None:
    driver.get(page)
    driver.execute_script(TRY, "L001")
    _save(driver, "explorer-decide")
    driver.execute_script("document.getElementById('engines').scrollIntoView();")
    _save(driver, "explorer-engines")
    driver.execute_script("window.scrollTo(0, 0);")
    driver.execute_script("nextTheme(); nextTheme();")
    driver.execute_script(TRY, "R018")
    _save(driver, "explorer-refused-dark")
    driver.get(page)
    driver.execute_script("openTab('rules'); document.getElementById('filter').value = 'markov';")
    driver.execute_script("showRules(); document.querySelector('#rules details').open = true;")
    _save(driver, "explorer-rules")
    driver.get(changes)
    driver.execute_script("openTab('changes');")
    _save(driver, "explorer-changes")
    size = {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page)
    driver.execute_script(TRY, "R018")
    driver.execute_script("window.scrollTo(0, 0);")
    _save(driver, "explorer-phone")


def _save(driver: Chrome, name: str) -> None:
    file = IMAGES / f"{name}.png"
    with Image.open(BytesIO(driver.get_screenshot_as_png())) as shot:
        few = shot.convert("RGB").quantize(96, Image.Quantize.MAXCOVERAGE)
    few.save(file, optimize=True)


if __name__ == "__main__":
    main()

"""A headless Chromium, and pages opened in it that may ask nobody for anything."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_llmperf.report.html import render

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY = (
    "The tests of the page need Chromium, and there is none: apt-get install --no-install-recommends chromium (or put "
    "google-chrome on the PATH). To leave them out: scripts/test.sh --without-browser, or pytest -m 'not browser'."
)


@pytest.fixture(scope="module")
def browser():
    """One for all pages of a module: its event loop would be in the way of other tests' own."""
    from playwright import sync_api as playwright

    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        pytest.fail(REMEDY, pytrace=False)
    with playwright.sync_playwright() as running:
        # A sandbox needs privileges that root in a container does not have.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        chromium = running.chromium.launch(executable_path=executable, args=arguments)
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """A page, what it said on the console, what it asked for, and what its policy forbade."""

    page: object
    path: Path
    said: list = field(default_factory=list)
    asked: list = field(default_factory=list)

    def violations(self):
        return self.page.evaluate("window.forbidden")

    def until(self, condition):
        """Wait until a JavaScript expression is true; Playwright's waiting evaluates text, which the page forbids."""
        self.page.evaluate(
            "async () => { const end = performance.now() + 15_000; while (!(" + condition + ")) {"
            " if (performance.now() > end) throw new Error('never true');"
            " await new Promise((next) => setTimeout(next, 20)); } }"
        )

    def settle(self):
        """Draw every chart, also those that are far away."""
        self.page.evaluate("async () => { llmperfPage.openAll(); await llmperfPage.drawAll(); }")
        assert self.page.locator(".plot:not([data-state=drawn])").all_text_contents() == []


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """Opens the page of a run; results, and options of a browser's context."""
    contexts = []

    def open_page(results, anchor="", **options):
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(render(results), encoding="utf-8")
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "accept_downloads": True} | options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        shown = Opened(page, path)
        page.on("console", lambda message: shown.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: shown.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: shown.said.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.add_init_script(
            "window.forbidden = []; document.addEventListener('securitypolicyviolation',"
            " (e) => window.forbidden.push(`${e.violatedDirective}: ${e.blockedURI}`));"
        )

        def route(request):
            if request.request.url.partition("#")[0] == path.as_uri():
                return request.continue_()
            shown.asked.append(request.request.url)
            return request.abort()

        page.route("**/*", route)
        page.goto(path.as_uri() + anchor)
        return shown

    yield open_page
    for context in contexts:
        context.close()

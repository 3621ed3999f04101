"""Pages in Chromium: a module that visits some has them in `pages`, and how wide in `WIDTH`."""

import pytest

from studies import chromium


@pytest.fixture(scope="module")
def chrome():
    with chromium.browser() as driver:
        yield driver


@pytest.fixture
def visit(request, chrome, pages):
    """Return a function that opens a page, and check at the end what the browser says of it."""
    chromium.size(chrome, request.module.WIDTH)
    chromium.scheme(chrome, "light")
    chromium.requests(chrome), chrome.get_log("browser")

    def open_page(name):
        chrome.get(pages[name][1].as_uri())
        return chrome

    yield open_page
    assert chrome.get_log("browser") == []  # an error of the script, or what the policy refused
    assert [url for url in chromium.requests(chrome) if not url.startswith("file://")] == []

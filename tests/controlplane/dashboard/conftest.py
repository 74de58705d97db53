"""A page that a test opens in a browser, which all tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.dashboard.browser import need_browser, one_browser
from tests.controlplane.dashboard.served import Page


@pytest.fixture(scope="package", autouse=True)
def shared_browser() -> Iterator[None]:
    with one_browser():
        yield


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    need_browser()
    with Page(tmp_path) as page:
        yield page

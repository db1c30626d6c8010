"""The real Dagster UI in a real browser: a job launched from the launchpad, and its partition's page.

Chromium comes from the system; `make test` leaves this module out where there is none.
"""

import shutil
from collections.abc import Iterator

import orjson
import pytest
from playwright.sync_api import Page, sync_playwright

from batch_pipelines.run_config import ASSET, JOB
from tests.support.deployment import Deployment, chats, deployment

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("ui"), {"BATCH_PIPELINES_ENGINE": "fake"}) as site:
        yield site


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    assert chromium, "install Chromium, or deselect the tests marked browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def launch_config(site: Deployment, name: str, items: int) -> str:
    """What a person pastes: the request's own JSON under the asset's name."""
    source = site.folder / f"{name}.jsonl"
    source.write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in chats(items, name)))
    request = {
        "input_data_path": str(source),
        "output_data_path": str(site.output(name)),
        "model_config": {"model": "fake"},
        "data_parallelism": 2,
    }
    return orjson.dumps({"ops": {ASSET: {"config": request}}}, option=orjson.OPT_INDENT_2).decode()


def test_job_launched_from_the_launchpad_succeeds_and_its_partition_shows_the_result(
    site: Deployment, page: Page
) -> None:
    site.client.add_partition("from-the-ui")
    page.goto(f"{site.client.url}/locations/batch_pipelines/jobs/{JOB}/playground")
    page.screenshot(path="/tmp/e/ui1.png")

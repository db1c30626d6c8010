"""The real Dagster UI in a real browser: launch from the launchpad, see the result, cancel.

Chromium comes from the system; `make test` leaves these tests out where there is none, and says so.
"""

import shutil
from collections.abc import Iterator

import orjson
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from batch_pipelines.api.job import JobStatus
from batch_pipelines.run_config import ASSET, JOB
from tests.support.deployment import Deployment, chats, deployment, slow_fake_engine
from tests.support.processes import gone, wait_until

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
    folder = tmp_path_factory.mktemp("ui")
    with deployment(folder, slow_fake_engine(folder, 0.2)) as site:
        yield site


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    assert chromium, "install Chromium, or deselect the tests marked browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(
            viewport={"width": 1440, "height": 1000}, permissions=["clipboard-read", "clipboard-write"]
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        # Dagster greets whoever comes first with a newsletter.
        page.add_locator_handler(page.get_by_role("button", name="Skip"), Locator.click)
        yield page
        browser.close()


def launch_config(site: Deployment, name: str, items: int) -> str:
    """What a person pastes: the request's own JSON under the asset's name."""
    source = site.folder / f"{name}.jsonl"
    lines = [*chats(items, f"{name}: what comes after"), {"messages": [{"content": "no role"}]}]
    source.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    request = {
        "input_data_path": str(source),
        "output_data_path": str(site.output(name)),
        "model_config": {"model": "fake"},
        "data_parallelism": 2,
    }
    return orjson.dumps({"ops": {ASSET: {"config": request}}}, option=orjson.OPT_INDENT_2).decode()


def launch_by_hand(site: Deployment, page: Page, partition: str, config: str) -> None:
    """Add a partition on the asset's page, paste the config in the launchpad, launch."""
    page.goto(f"{site.client.url}/assets/{ASSET}?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Add a partition").click()
    page.get_by_placeholder("name", exact=True).fill(partition)
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Cancel").last.click()

    page.goto(f"{site.client.url}/locations/batch_pipelines/jobs/{JOB}/playground")
    page.get_by_placeholder("Partition").click()
    page.get_by_text(partition, exact=True).click()
    page.locator(".CodeMirror").click()
    page.evaluate("text => navigator.clipboard.writeText(text)", config)
    page.keyboard.press("Control+A")
    page.keyboard.press("Control+V")
    expect(page.get_by_text("No errors")).to_be_visible()
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_url("**/runs/**")


def test_job_launched_from_the_launchpad_succeeds_and_its_partition_shows_the_result(
    site: Deployment, page: Page
) -> None:
    launch_by_hand(site, page, "from-the-ui", launch_config(site, "ui", 40))
    assert site.wait_for_end("from-the-ui").job.status is JobStatus.COMPLETED
    records = site.records("ui")
    assert [record.get("custom_id") for record in records] == [*range(40), None]

    page.goto(f"{site.client.url}/assets/{ASSET}?view=partitions&partition=from-the-ui")
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()
    shown = {
        row.locator("td").nth(0).inner_text().strip(): row.locator("td").nth(1).inner_text().strip()
        for row in page.locator("tr").all()
        if row.locator("td").count() >= 2
    }
    assert (shown["items"], shown["succeeded"], shown["failed"]) == ("41", "40", "1")
    assert int(shown["prompt_tokens"]) > 0
    assert int(shown["completion_tokens"]) == sum(r["usage"]["completion_tokens"] for r in records[:40])
    assert str(site.output("ui")) in shown["output"]
    assert "ui: what comes after 0" in shown["preview"]
    assert records[0]["choices"][0]["message"]["content"] in shown["preview"]


def test_job_cancelled_from_the_ui_ends_its_replicas_and_publishes_nothing(
    site: Deployment, page: Page
) -> None:
    launch_by_hand(site, page, "to-cancel", launch_config(site, "cancelled", 1000))
    site.wait_for_commits("to-cancel", 1)
    replicas = {entry.pid for entry in site.journal if entry.prompt.startswith("cancelled:")}
    page.get_by_role("button", name="Terminate").click()
    page.get_by_role("button", name="Terminate").last.click()  # the dialog asks once more
    assert site.wait_for_end("to-cancel").job.status is JobStatus.CANCELLED
    wait_until(lambda: all(gone(pid) for pid in replicas))
    assert site.committed("to-cancel")
    assert not site.output("cancelled").exists()

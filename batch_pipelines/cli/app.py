"""What every command shares: settings, the client, the options that all have, and how to speak.

Results go to stdout, one JSON value with `--json`; everything else goes to stderr.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click
import httpx
import orjson
from pydantic import BaseModel

from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.jobs import Jobs
from batch_pipelines.settings import Settings

__all__ = ["App", "common_options", "echo_json", "note"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass
class App:
    """The state of one invocation.

    Attributes:
        as_json: Whether results are printed as JSON.
        url: Address of Dagster in place of the settings' own.
        poll_sec: Seconds between two looks at a job.
        transport: In place of the network, for tests.
    """

    as_json: bool = False
    url: str | None = None
    poll_sec: float = 1.0
    transport: httpx.BaseTransport | None = None

    @cached_property
    def settings(self) -> Settings:
        """The deployment's settings, from the environment."""
        settings = Settings()
        return settings.model_copy(update={"dagster_url": self.url}) if self.url else settings

    @cached_property
    def client(self) -> DagsterClient:
        """Of the deployment's Dagster."""
        return self.client_of(self.settings)

    @cached_property
    def deployment(self) -> Settings:
        """The settings, with the job store that the deployment itself names.

        A command may be started in another folder than the deployment was, and find another default.
        """
        store = self.client.job_store()
        return self.settings.model_copy(update={"store": store}) if store else self.settings

    def client_of(self, settings: Settings) -> DagsterClient:
        """A client for other settings than the environment's."""
        return DagsterClient(settings.dagster_url, settings.location, transport=self.transport)

    @property
    def jobs(self) -> Jobs:
        """The deployment's jobs."""
        return Jobs(self.client, self.deployment)


def common_options(command: _Command) -> _Command:
    """Give a command `--json` and `--url`; they work before and after its name."""
    as_json = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set("as_json"),
        help="Print the result as one JSON value; messages and progress stay on stderr.",
    )
    url = click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_set("url"),
        help="Address of the Dagster webserver [default: BATCH_PIPELINES_DAGSTER_URL or http://127.0.0.1:3000].",
    )
    return as_json(url(command))


def _set(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value:
            setattr(context.ensure_object(App), name, value)
        return value

    return callback


def echo_json(value: Any) -> None:
    """Print a result as JSON; of a model, just the fields that were set."""
    click.echo(orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2))


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def note(text: str) -> None:
    """Tell the user something that is not the result."""
    click.echo(text, err=True)

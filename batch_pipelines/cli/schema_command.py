"""The command that prints the JSON Schemas of the wire types."""

from typing import cast, get_args

import click

from batch_pipelines.api.schema import SchemaName, json_schema
from batch_pipelines.cli.app import common_options, echo_json

__all__ = ["schema"]


@click.command()
@click.argument("name", type=click.Choice(get_args(SchemaName)))
@common_options
def schema(name: str) -> None:
    """Print the JSON Schema of a request, a job, an input item, an output file or `model_config`."""
    echo_json(json_schema(cast(SchemaName, name)))

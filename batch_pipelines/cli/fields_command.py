"""The command that prints what becomes of each field."""

import click

from batch_pipelines.field_guide import render_markdown

__all__ = ["fields"]


@click.command()
def fields() -> None:
    """Print every field of the contract and what becomes of it, as Markdown."""
    click.echo(render_markdown(), nl=False)

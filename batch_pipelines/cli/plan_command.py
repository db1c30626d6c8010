"""The command that tells what a request would take and how it would fare, without running it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batch_pipelines.api.parse import parse_request
from batch_pipelines.cli.app import App, common_options, echo_json, note
from batch_pipelines.cli.exit_codes import ExitCode
from batch_pipelines.hardware.quantities import format_bytes, format_cpus
from batch_pipelines.planning import Plan, plan_request
from batch_pipelines.submission import resolve_paths
from resources.deployment import engines_of, plan_deployment

__all__ = ["plan"]

_PIPED_WIDTH = 200


@click.command()
@click.argument("file", type=click.File("rb"), metavar="REQUEST")
@common_options
@click.make_pass_decorator(App)
def plan(app: App, file: BinaryIO) -> None:
    """Tell what REQUEST ('-' for stdin) would take, and what would be refused, without running it.

    Nothing of the job is written and no Dagster is asked; what describes a remote model is fetched into the
    cache of models. Paths, models and hardware are those of this machine's own settings. The exit code is
    2 if the request would be refused; items that would be refused are counted, and leave it at 0.
    """
    request = resolve_paths(parse_request(file.read()), Path.cwd())
    engines = engines_of(app.settings)
    made = plan_request(
        request,
        plan_deployment(app.settings),
        look=engines.look,
        check_engine=engines.check,
        open_preflight=engines.preflight,
    )
    if app.as_json:
        echo_json(_as_json(made))
    else:
        _print(made)
    if made.errors:
        click.get_current_context().exit(ExitCode.INVALID)


def _as_json(made: Plan) -> dict[str, Any]:
    hardware, items, model = made.hardware, made.items, made.model
    facts = model.facts if model else None
    return {
        "accepted": not made.errors,
        "errors": [{"pointer": error.pointer, "message": error.message} for error in made.errors],
        "warnings": list(made.warnings),
        "model": {
            "name": made.request.engine_config.model,
            "source": model.source if model else None,
            "parameters": facts.parameters if facts else None,
            "weight_bytes": facts.weight_bytes if facts else None,
            "context": facts.context if facts else None,
            "quantization": facts.quantization if facts else None,
        },
        "replicas": made.request.replicas,
        "pods": made.pods,
        "total_gpus": made.total_gpus,
        "hardware": hardware
        and {
            "cpus": format_cpus(hardware.cpus),
            "gpus": hardware.gpus,
            "memory": format_bytes(hardware.memory),
            "storage": format_bytes(hardware.storage),
            "gpu_type": hardware.gpu_type,
            "nodes_per_worker": hardware.nodes_per_worker,
            "tensor_parallel_size": hardware.tensor_parallel_size,
            "pipeline_parallel_size": hardware.pipeline_parallel_size,
            "reasons": list(hardware.reasons),
        },
        "input": items
        and {
            "source": made.request.input_data_path,
            "kind": items.kind,
            "items": items.items,
            "refused": items.refused,
            "estimated_tokens": items.estimated_tokens,
            "first_refused": [
                {"index": each.index, "line": each.line, "field": each.field, "message": each.message}
                for each in items.first_refused
            ],
        },
    }


def _print(made: Plan) -> None:
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(no_wrap=True)
    facts.add_column()
    for name, value in _facts(made):
        facts.add_row(name, Text(value))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)
    console.print(facts)
    if made.items and made.items.first_refused:
        console.print()
        console.print(_refusals(made))
    for warning in made.warnings:
        note(f"warning: {warning}")
    if made.errors:
        note("the request would be refused:")
        for error in made.errors:
            note(f"  {error}")


def _facts(made: Plan) -> Iterator[tuple[str, str]]:
    request, hardware, items, model = made.request, made.hardware, made.items, made.model
    yield "model", request.engine_config.model
    yield "loaded from", model.source if model else "cannot be had"
    yield "replicas", str(request.replicas)
    if hardware:
        each = f" ({hardware.nodes_per_worker} for each replica)" if hardware.nodes_per_worker > 1 else ""
        yield "pods", f"{made.pods}{each}"
        gpus = f"{hardware.gpus} x {hardware.gpu_type}" if hardware.gpus else "none"
        yield "GPUs a pod", gpus
        yield "GPUs in all", str(made.total_gpus)
        yield "CPUs a pod", format_cpus(hardware.cpus)
        yield "memory a pod", format_bytes(hardware.memory)
        yield "storage a pod", format_bytes(hardware.storage)
        sizes = f"tensor {hardware.tensor_parallel_size}, pipeline {hardware.pipeline_parallel_size}"
        yield "parallel sizes", sizes
        for index, reason in enumerate(hardware.reasons):
            yield "because" if index == 0 else "", reason
    if items:
        yield "input", request.input_data_path or "(with the request)"
        yield "items", f"{items.items:,}" + (f" ({items.kind})" if items.kind else "")
        yield "tokens, about", f"{items.estimated_tokens:,}"
        yield "refused items", f"{items.refused:,}"


def _refusals(made: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("ITEM", "LINE"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("FIELD", no_wrap=True)
    table.add_column("WHY IT IS REFUSED")
    for each in made.items.first_refused if made.items else ():
        table.add_row(str(each.index), str(each.line or ""), Text(each.field or ""), Text(each.message))
    return table

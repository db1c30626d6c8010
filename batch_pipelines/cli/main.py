"""The entry point: the group of commands, and what their errors look like."""

from typing import Any

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from batch_pipelines.api.errors import FieldError, RequestInvalid, describe, dotted
from batch_pipelines.cli.app import App, common_options, echo_json, note
from batch_pipelines.cli.exit_codes import EXIT_CODES_HELP, ExitCode
from batch_pipelines.cli.fields_command import fields
from batch_pipelines.cli.job_commands import cancel, list_jobs, status, submit, wait
from batch_pipelines.cli.local_commands import demo, dev
from batch_pipelines.cli.output_command import output
from batch_pipelines.cli.plan_command import plan
from batch_pipelines.cli.schema_command import schema
from batch_pipelines.control.errors import ControlError, DagsterUnreachable, NoSuchJob
from batch_pipelines.hardware.tables import TableInvalid
from batch_pipelines.models.errors import CatalogInvalid, ModelUnavailable
from batch_pipelines.storage.errors import StorageError

__all__ = ["cli"]


class _Commands(click.Group):
    """A group whose commands may raise this project's errors."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its error becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _fail(ctx, "interrupted", "interrupted", ExitCode.INTERRUPTED)
        except RequestInvalid as error:
            _fail(ctx, "invalid_request", str(error), ExitCode.INVALID, error.errors)
        except NoSuchJob as error:
            _fail(ctx, "no_such_job", str(error), ExitCode.NO_SUCH_JOB)
        except DagsterUnreachable as error:
            _fail(ctx, "dagster_unreachable", str(error), ExitCode.UNREACHABLE)
        except (CatalogInvalid, TableInvalid) as error:
            _fail(ctx, "invalid_settings", str(error), ExitCode.INVALID)
        except (ControlError, StorageError, ModelUnavailable) as error:
            _fail(ctx, "failed", str(error), ExitCode.FAILED)
        except ValidationError as error:
            if error.title != "Settings":
                raise
            _fail(ctx, "invalid_settings", _wrong_settings(error), ExitCode.INVALID)
        except SettingsError as error:
            _fail(ctx, "invalid_settings", f"{error}: it must be JSON", ExitCode.INVALID)


def _wrong_settings(error: ValidationError) -> str:
    """A line for each variable that is wrong."""
    lines = []
    for path, message in describe(error):
        variable = f"BATCH_PIPELINES_{str(path[0]).upper()}" if path else "BATCH_PIPELINES_*"
        within = f" at {dotted(path[1:])}" if path[1:] else ""
        lines.append(f"{variable}{within}: {message}")
    return "\n".join(lines)


def _fail(
    ctx: click.Context, kind: str, message: str, code: ExitCode, errors: list[FieldError] | None = None
) -> None:
    if ctx.ensure_object(App).as_json:
        fields = [{"pointer": each.pointer, "message": each.message} for each in errors or ()]
        echo_json({"error": {"type": kind, "message": message, "errors": fields}})
    note(f"error: {message}")
    ctx.exit(code)


@click.group(cls=_Commands, epilog=EXIT_CODES_HELP)
@click.version_option(package_name="batch-pipelines")
@common_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Batch completions: one request in, one complete and ordered output file out."""
    app = ctx.ensure_object(App)
    ctx.call_on_close(lambda: app.client.close() if "client" in vars(app) else None)


for _command in (submit, plan, status, wait, cancel, list_jobs, output, schema, fields, demo, dev):
    cli.add_command(_command)

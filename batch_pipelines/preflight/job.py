"""What can be said of a job before its items are looked at: has its model what chats and texts need?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batch_pipelines.api.items import ItemKind
from batch_pipelines.preflight.chats import NO_TEMPLATE
from batch_pipelines.preflight.helper import Helper, HelperLost
from batch_pipelines.preflight.model_folder import ModelFolder, read_model_folder
from batch_pipelines.preflight.settings import PreflightSettings
from batch_pipelines.preflight.templates import Templates

__all__ = ["JobFindings", "check_job"]

_CHAT: Final = {"messages": [{"role": "user", "content": "Hello"}]}


@dataclass(frozen=True, slots=True)
class JobFindings:
    """What is wrong with a job as a whole.

    Attributes:
        problems: Why no item of it can be answered.
        warnings: What some of its items may run into.
    """

    problems: list[str]
    warnings: list[str]


def check_job(folder: Path, settings: PreflightSettings, *, kind: ItemKind | None = None) -> JobFindings:
    """Check a model's small files against a job.

    Args:
        folder: The checkpoint's folder; its weights need not be there.
        settings: How the engine will be set up.
        kind: What the job's items are, if that is known.
    """
    model = read_model_folder(folder, settings)
    findings = JobFindings([], [])
    if settings.skip_tokenizer:
        if kind in ("chat", "v1"):
            findings.problems.append(
                "model_config.skip_tokenizer_init: without a tokenizer the engine takes only token ids"
            )
        return findings
    if not model.has_tokenizer:
        place = settings.tokenizer_folder or folder
        findings.problems.append(
            f"model: {place.name} has no tokenizer (tokenizer.json or tokenizer.model); set "
            "model_config.tokenizer, or send token ids with model_config.skip_tokenizer_init"
        )
    if kind in ("chat", None) and not model.own_rendering:
        _check_template(model, settings, findings, of_chats=kind == "chat")
    return findings


def _check_template(
    model: ModelFolder, settings: PreflightSettings, findings: JobFindings, *, of_chats: bool
) -> None:
    serious = findings.problems if of_chats or settings.chat_template is not None else findings.warnings
    template = model.template(settings.chat_template, tools=False)
    if template is None:
        if not model.engine_has_template:
            serious.append(f"chats: {NO_TEMPLATE}")
        return
    whose = (
        "model_config.chat_template" if settings.chat_template is not None else "the model's chat template"
    )
    with Helper(memory_bytes=settings.memory_bytes) as helper:
        templates = Templates(model, settings, helper)
        reason = templates.variables(template)
        if isinstance(reason, str):
            serious.append(f"{whose} {reason}")
            return
        try:
            templates.render(template, _CHAT, loads={}, enough=None)
        except ValueError as failure:
            # Some templates insist on more than that, such as a system message.
            findings.warnings.append(f"{whose} does not take a chat of one message: it {failure}")
        except HelperLost as loss:
            serious.append(f"{whose} cannot be rendered: it {loss}")

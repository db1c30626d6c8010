"""What a job's items ask of the engine itself, beyond the settings of the request.

Some fields of an item work only on an engine that was started for them. The sharding stage sees every item
before any engine starts, so the engine can be set up for just what is used.
"""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["NO_NEEDS", "EngineNeeds"]


class EngineNeeds(BaseModel):
    """How the engine must be set up for a job's items."""

    model_config = ConfigDict(frozen=True)

    priorities: bool = Field(default=False, description="Items have a `priority`.")
    chat_templates: bool = Field(
        default=False, description="Items bring a `chat_template`; all were rendered."
    )
    tools: bool = Field(default=False, description="Items have tools that may or must be called.")
    seeds: bool = Field(default=False, description="Items have a `seed`.")
    log_probs: int = Field(default=0, description="Most log probabilities wanted at one position.")
    structured_backend: str | None = Field(default=None, description="Their `guided_decoding_backend`.")


NO_NEEDS = EngineNeeds()
"""An engine as the request sets it up."""

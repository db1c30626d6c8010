"""How a check says no."""

from batch_pipelines.api.output import ItemError

__all__ = ["refusal"]


def refusal(field: str, why: str) -> ItemError:
    """The error of an item that the engine cannot be given.

    Args:
        field: The field at fault, such as `messages[2].content[0]`.
        why: What is wrong with it and what to do, to be read after the field's name.
    """
    return ItemError(message=f"{field}: {why}", type="BadRequestError", param=field, code=400)

"""A model that takes images: the packaged one behind a small vision tower of random weights.

What it says about a picture means nothing; that a picture reaches the model, and which, can be told by the
prompt's tokens and the likelihoods.
"""

import base64
import io
import warnings
from pathlib import Path

from PIL import Image

__all__ = ["PATCHES", "make_vision_model", "picture"]

_SIDE, _PATCH, _SHUFFLE = 28, 7, 2
PATCHES = (_SIDE // _PATCH // _SHUFFLE) ** 2
"""Tokens that the pixels of one image become; some more stand around them."""
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_vision_model(language_model: Path, folder: Path) -> Path:
    """Write the checkpoint to `folder` and return it.

    Args:
        language_model: The packaged model's folder.
        folder: A new folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers import (
            AutoModelForCausalLM,
            AutoTokenizer,
            Idefics3Config,
            Idefics3ForConditionalGeneration,
            Idefics3ImageProcessorPil,
            Idefics3Processor,
        )

        tokenizer = AutoTokenizer.from_pretrained(language_model)
        edge = {"longest_edge": _SIDE}
        processor = Idefics3Processor(
            Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False),
            tokenizer,
            image_seq_len=PATCHES,
            chat_template=_TEMPLATE,
        )
        language = AutoModelForCausalLM.from_pretrained(language_model, dtype=torch.bfloat16)
        language.resize_token_embeddings(len(processor.tokenizer))
        vision = {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": _SIDE,
            "patch_size": _PATCH,
        }
        config = Idefics3Config(
            text_config=language.config.to_dict(),
            vision_config=vision,
            scale_factor=_SHUFFLE,
            image_token_id=processor.tokenizer.convert_tokens_to_ids("<image>"),
            tie_word_embeddings=True,
        )
        torch.manual_seed(0)
        model = Idefics3ForConditionalGeneration(config)
        model.bfloat16()
        model.model.text_model.load_state_dict(language.model.state_dict())
        model.tie_weights()
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder


def picture(colour: str) -> str:
    """A picture of one colour, as a `data:` URL."""
    buffer = io.BytesIO()
    Image.new("RGB", (_SIDE, _SIDE), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

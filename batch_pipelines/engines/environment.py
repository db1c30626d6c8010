"""The environment of an engine's process: what of ours it may see.

An engine runs third-party code, and with `trust_remote_code` the model's own, so it is given what loading and
running a model takes and nothing else: no database password, no token of the orchestrator. Nothing of a
request gets here.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME",
        "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
        "http_proxy", "https_proxy", "no_proxy", "all_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CC", "CXX",
    }
)  # fmt: skip
_PREFIXES = (
    # Locale and cache folders.
    "LC_", "XDG_",
    # Where weights come from.
    "HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "SAFETENSORS_", "MODELSCOPE_",
    # Checkpoints in object storage.
    "AWS_", "AZURE_", "RUNAI_STREAMER_", "S3_",
    # The engine and its compilers.
    "VLLM_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_",
    # Devices and the network between them.
    "CUDA", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "ROCR_", "ROCM_", "HIP_", "HSA_",
    # Threads and memory on a CPU.
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_",
)  # fmt: skip
_WITHHELD = frozenset(
    {
        "VLLM_API_KEY",  # the server would then ask it of us
        "VLLM_PORT",  # a URL in a pod beside a Service named "vllm": vLLM then fails to start
        "VLLM_SERVER_DEV_MODE",  # opens administrative routes
    }
)
_SET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",  # an allowed host must not lead to one that is not
    "PYTHONUNBUFFERED": "1",  # the log is read line by line while it runs
    # With its default of 5 s the server may close an idle connection just as a request goes out on it.
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",
}


def engine_environment(inherited: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return an engine's variables: the allowed ones of `inherited`, those always set, and `extra` on top.

    `PYTHONDONTWRITEBYTECODE` is not among the allowed ones: each of an engine's three processes imports some
    thousand modules, which takes 8 s with compiled copies at hand and 22 s without.
    """
    allowed = {
        name: value
        for name, value in inherited.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in _WITHHELD
    }
    return {**allowed, **_SET, **extra}

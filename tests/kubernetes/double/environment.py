"""What a container's command and environment become: sources resolved, `$(NAME)` replaced."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.double.images import Image
from tests.kubernetes.double.quantities import quantity
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["ConfigProblem", "container_command", "container_environment", "data_of"]

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_PLAIN_FIELDS = {
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.podIP",
}  # fmt: skip


class ConfigProblem(Exception):
    """Something a container's environment refers to is not there."""


def container_environment(
    store: Store, pod: JsonObject, container: Mapping[str, Any], base: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Resolve a container's variables.

    Returns:
        All of its environment, and the part that `$(NAME)` in its command can refer to.

    Raises:
        ConfigProblem: A ConfigMap, a Secret or a key does not exist.
    """
    namespace = pod["metadata"]["namespace"]
    own: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        own.update(_all_of(store, namespace, source))
    for variable in container.get("env") or []:
        value_from = variable.get("valueFrom")
        if value_from:
            value = _value_from(store, pod, container, value_from)
        else:
            value = _expand(variable.get("value") or "", own)
        if value is not None:
            own[variable["name"]] = value
    hostname = pod["spec"].get("hostname") or pod["metadata"]["name"][:63]
    return {**base, "HOSTNAME": hostname, **own}, own


def container_command(container: Mapping[str, Any], image: Image, own: Mapping[str, str]) -> list[str]:
    """Return the program and arguments of a container. `command` makes the image's own command void, too."""
    command = container.get("command") or list(image.entrypoint)
    args = container.get("args") or ([] if container.get("command") else list(image.command))
    return [_expand(part, own) for part in [*command, *args]]


def data_of(obj: JsonObject) -> dict[str, str]:
    """Return the texts of a ConfigMap or a Secret."""
    data: dict[str, str] = obj.get("data") or {}
    if obj["kind"] == "Secret":
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    return data


def _all_of(store: Store, namespace: str, source: Mapping[str, Any]) -> dict[str, str]:
    kind = "configmap" if source.get("configMapRef") else "secret"
    reference = source.get("configMapRef") or source["secretRef"]
    found = store.find(f"{kind}s", namespace, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise ConfigProblem(f'{kind} "{reference["name"]}" not found')
    return {(source.get("prefix") or "") + key: value for key, value in data_of(found).items()}


def _value_from(
    store: Store, pod: JsonObject, container: Mapping[str, Any], source: Mapping[str, Any]
) -> str | None:
    if source.get("fieldRef"):
        return _field(pod, source["fieldRef"]["fieldPath"])
    if source.get("resourceFieldRef"):
        return _resource(container, source["resourceFieldRef"])
    kind = "configmap" if source.get("configMapKeyRef") else "secret"
    reference = source.get("configMapKeyRef") or source["secretKeyRef"]
    namespace = pod["metadata"]["namespace"]
    found = store.find(f"{kind}s", namespace, reference["name"])
    if found is not None and reference["key"] in data_of(found):
        return data_of(found)[reference["key"]]
    if reference.get("optional"):
        return None
    if found is None:
        raise ConfigProblem(f'{kind} "{reference["name"]}" not found')
    titled = "ConfigMap" if kind == "configmap" else "Secret"
    raise ConfigProblem(f"couldn't find key {reference['key']} in {titled} {namespace}/{reference['name']}")


def _field(pod: JsonObject, path: str) -> str:
    if found := _SUBSCRIPT.fullmatch(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path == "status.podIPs":
        path = "status.podIP"
    if path not in _PLAIN_FIELDS:
        raise ConfigProblem(f"field label not supported: {path}")
    part, name = path.split(".")
    return str(pod[part].get(name, ""))


def _resource(container: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    kind, _, name = reference["resource"].partition(".")
    amount = quantity(((container.get("resources") or {}).get(kind) or {}).get(name, 0))
    return str(math.ceil(amount / (quantity(reference.get("divisor") or 1) or 1)))


def _expand(text: str, known: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)

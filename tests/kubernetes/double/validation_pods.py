"""Rules for a pod's spec, beyond its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.double.validation_meta import is_dns_label, is_dns_subdomain, label_problems
from tests.kubernetes.double.validation_resources import resource_problems, volume_size_problems

__all__ = ["pod_spec_problems"]

_ENV_NAME = re.compile(r"[ -<>-~]+")  # printable ASCII but "="
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_VOLUME_NOT_A_SOURCE = {"name"}

Json = Mapping[str, Any]


def pod_spec_problems(spec: Json, where: str) -> list[str]:
    """Return what is wrong with a pod's spec that lies at `where`."""
    problems = []
    containers = spec.get("containers") or []
    if not containers:
        problems.append(f"{where}.containers: Required value")
    volumes = _volume_problems(spec, where, problems)
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            here = f"{where}.{field}[{index}]"
            problems += _container_problems(container, here, volumes)
            if container["name"] in names:
                problems.append(f'{here}.name: Duplicate value: "{container["name"]}"')
            names.add(container["name"])
    if spec.get("restartPolicy") not in (None, *_RESTART_POLICIES):
        problems.append(f'{where}.restartPolicy: Unsupported value: "{spec["restartPolicy"]}"')
    for field, least in (("activeDeadlineSeconds", 1), ("terminationGracePeriodSeconds", 0)):
        if spec.get(field) is not None and spec[field] < least:
            problems.append(f"{where}.{field}: Invalid value: {spec[field]}: must be {least} or more")
    problems += label_problems(spec.get("nodeSelector"), f"{where}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or []):
        problems += _toleration_problems(toleration, f"{where}.tolerations[{index}]")
    problems += _affinity_problems(spec, where)
    for field in ("hostname", "subdomain"):
        if spec.get(field) and not is_dns_label(spec[field]):
            problems.append(f'{where}.{field}: Invalid value: "{spec[field]}": must be an RFC 1123 label')
    for field in ("serviceAccountName", "priorityClassName"):
        if spec.get(field) and not is_dns_subdomain(spec[field]):
            problems.append(f'{where}.{field}: Invalid value: "{spec[field]}": must be an RFC 1123 subdomain')
    return problems


def _volume_problems(spec: Json, where: str, problems: list[str]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        here, name = f"{where}.volumes[{index}]", volume["name"]
        if not is_dns_label(name):
            problems.append(f'{here}.name: Invalid value: "{name}": must be an RFC 1123 label')
        if name in names:
            problems.append(f'{here}.name: Duplicate value: "{name}"')
        names.add(name)
        sources = [
            field
            for field, value in volume.items()
            if field not in _VOLUME_NOT_A_SOURCE and value is not None
        ]
        if not sources:
            problems.append(f"{here}: Required value: must specify a volume type")
        if len(sources) > 1:
            problems.append(f"{here}.{sources[1]}: Forbidden: may not specify more than 1 volume type")
        problems += volume_size_problems(volume, here)
    return names


def _container_problems(container: Json, where: str, volumes: set[str]) -> list[str]:
    problems = []
    if not is_dns_label(container["name"]):
        problems.append(f'{where}.name: Invalid value: "{container["name"]}": must be an RFC 1123 label')
    image = container.get("image")
    if not image:
        problems.append(f"{where}.image: Required value")
    elif image != image.strip():
        problems.append(
            f'{where}.image: Invalid value: "{image}": must not have leading or trailing whitespace'
        )
    for index, variable in enumerate(container.get("env") or []):
        problems += _env_problems(variable, f"{where}.env[{index}]")
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        here = f"{where}.volumeMounts[{index}]"
        if mount["name"] not in volumes:
            problems.append(f'{here}.name: Not found: "{mount["name"]}"')
        if mount["mountPath"] in paths:
            problems.append(f'{here}.mountPath: Invalid value: "{mount["mountPath"]}": must be unique')
        if ".." in (mount.get("subPath") or "").split("/"):
            problems.append(f"{here}.subPath: Invalid value: must not contain '..'")
        paths.add(mount["mountPath"])
    return problems + resource_problems(container.get("resources") or {}, f"{where}.resources")


def _env_problems(variable: Json, where: str) -> list[str]:
    problems = []
    if not _ENV_NAME.fullmatch(variable["name"]):
        problems.append(
            f'{where}.name: Invalid value: "{variable["name"]}": a valid environment variable name'
        )
    source = variable.get("valueFrom")
    if source is not None:
        if variable.get("value"):
            problems.append(
                f"{where}.valueFrom: Invalid value: may not be specified when `value` is not empty"
            )
        if len([value for value in source.values() if value is not None]) != 1:
            problems.append(f"{where}.valueFrom: Invalid value: must specify exactly one of its sources")
    return problems


def _toleration_problems(toleration: Json, where: str) -> list[str]:
    problems = []
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect")
    if operator not in ("Equal", "Exists"):
        problems.append(
            f'{where}.operator: Unsupported value: "{operator}": supported values: "Equal", "Exists"'
        )
    if operator == "Exists" and toleration.get("value"):
        problems.append(f"{where}.operator: Invalid value: value must be empty when `operator` is 'Exists'")
    if not toleration.get("key") and operator != "Exists":
        problems.append(f"{where}.operator: Invalid value: must be Exists when `key` is empty")
    if effect and effect not in _EFFECTS:
        problems.append(f'{where}.effect: Unsupported value: "{effect}"')
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        problems.append(f"{where}.effect: Invalid value: must be 'NoExecute' when `tolerationSeconds` is set")
    return problems + label_problems(
        {toleration["key"]: ""} if toleration.get("key") else None, f"{where}.key"
    )


def _affinity_problems(spec: Json, where: str) -> list[str]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return []
    here = f"{where}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = required.get("nodeSelectorTerms") or []
    problems = [] if terms else [f"{here}: Required value: must have at least one node selector term"]
    for index, term in enumerate(terms):
        for place, expression in enumerate(term.get("matchExpressions") or []):
            at = f"{here}[{index}].matchExpressions[{place}]"
            operator, values = expression["operator"], expression.get("values") or []
            if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
                problems.append(f'{at}.operator: Invalid value: "{operator}": not a valid selector operator')
            if operator in ("In", "NotIn") and not values:
                problems.append(
                    f"{at}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                )
            if operator in ("Exists", "DoesNotExist") and values:
                problems.append(
                    f"{at}.values: Forbidden: may not be specified when `operator` is '{operator}'"
                )
            problems += label_problems({expression["key"]: ""}, f"{at}.key")
    return problems

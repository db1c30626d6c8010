"""Whether a pod's volumes can be had. Nothing is mounted: see the package's limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.double.environment import data_of
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["missing_claim", "volume_problem"]

Json = Mapping[str, Any]


def missing_claim(store: Store, pod: JsonObject) -> str:
    """Return the scheduler's words for a claim that is not there, or nothing."""
    for volume in pod["spec"].get("volumes") or []:
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if name and store.find("persistentvolumeclaims", pod["metadata"]["namespace"], name) is None:
            return f'persistentvolumeclaim "{name}" not found'
    return ""


def volume_problem(store: Store, pod: JsonObject) -> str:
    """Return the kubelet's words for the first volume that cannot be set up, or nothing."""
    for volume in pod["spec"].get("volumes") or []:
        problem = _source_problem(store, pod, volume, volume)
        for source in (volume.get("projected") or {}).get("sources") or []:
            problem = problem or _source_problem(store, pod, volume, source)
        if problem:
            return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}'
    return ""


def _source_problem(store: Store, pod: JsonObject, volume: Json, source: Json) -> str:
    namespace = pod["metadata"]["namespace"]
    host_path = source.get("hostPath")
    if host_path and host_path.get("type") in ("Directory", "File") and not Path(host_path["path"]).exists():
        return f"hostPath type check failed: {host_path['path']} does not exist"
    for kind in ("configMap", "secret"):
        reference = source.get(kind)
        if not reference:
            continue
        name = reference.get("name") or reference.get("secretName")
        found = store.find(f"{kind.lower()}s", namespace, name)
        if found is None:
            if reference.get("optional"):
                continue
            return f'{kind.lower()} "{name}" not found'
        data = data_of(found)
        wanted = {item["key"]: item["path"] for item in reference.get("items") or []} or {
            key: key for key in data
        }
        missing = [key for key in wanted if key not in data]
        if missing and not reference.get("optional"):
            return (
                f"references non-existent {'config' if kind == 'configMap' else 'secret'} key: {missing[0]}"
            )
        if kind == "configMap":
            files = {path: data[key] for key, path in wanted.items() if key in data}
            return _other_content(pod, volume["name"], files)
    return ""


def _other_content(pod: JsonObject, volume: str, files: Mapping[str, str]) -> str:
    # A container sees this machine's files, so a file that a mount would hide must say the same.
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        for mount in container.get("volumeMounts") or []:
            if mount["name"] != volume:
                continue
            for path, content in files.items():
                here = Path(mount["mountPath"])
                if not mount.get("subPath"):
                    here = here / path
                elif mount["subPath"] != path:
                    continue
                if here.exists() and (here.is_dir() or here.read_text() != content):
                    return f"the double does not mount, and {here} of this machine has other content"
    return ""

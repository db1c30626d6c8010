"""What a test sees of the double: objects, logs, processes, and all that clients have asked."""

from __future__ import annotations

from tests.kubernetes.double.deletion import is_finished
from tests.kubernetes.double.kubelet import Kubelets
from tests.kubernetes.double.record import Manifest, Record, Refusal, RequestLine
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.selectors import label_selector
from tests.kubernetes.double.store import Store

__all__ = ["Observer"]


class Observer:
    """The half of a cluster that changes nothing. Objects are snapshots: not to be written to."""

    def __init__(self, store: Store, record: Record, kubelets: Kubelets, namespace: str) -> None:
        self.namespace = namespace
        self._store = store
        self._record = record
        self._kubelets = kubelets

    @property
    def manifests(self) -> list[Manifest]:
        """Every manifest that came, as it came."""
        return self._record.manifests

    @property
    def rejected(self) -> list[Refusal]:
        """Every manifest that was refused."""
        return self._record.rejected

    @property
    def requests(self) -> list[RequestLine]:
        """Every request, faulty ones too."""
        return self._record.requests

    def manifests_of(self, plural: str, selector: str = "") -> list[JsonObject]:
        """Return the manifests of a kind (`jobs`) that were to be created and whose labels match."""
        matches = label_selector(selector)
        return [
            one.manifest
            for one in self._record.manifests
            if (one.verb, one.plural) == ("create", plural) and matches(one.manifest)
        ]

    def pods(self, selector: str = "") -> list[JsonObject]:
        """Pods of the namespace."""
        return self._store.list("pods", self.namespace, label_selector(selector))

    def jobs(self, selector: str = "") -> list[JsonObject]:
        """Jobs of the namespace."""
        return self._store.list("jobs", self.namespace, label_selector(selector))

    def events(self, name: str = "") -> list[JsonObject]:
        """Events of the namespace, of one object's name or of all."""
        return self._store.list(
            "events", self.namespace, lambda event: name in ("", event["involvedObject"]["name"])
        )

    def live_pods(self, selector: str = "") -> list[str]:
        """Names of pods that neither succeeded nor failed, or that are being deleted."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(selector)
            if not is_finished(pod) or pod["metadata"].get("deletionTimestamp")
        ]

    def pids(self) -> list[int]:
        """Process ids of all commands that run in containers, on nodes that are not lost."""
        return self._kubelets.pids()

    def log(self, pod: str) -> str:
        """Return what the pods of this name have printed, those that are gone too."""
        folders = self._kubelets.folders_of_name(pod)
        files = [file for folder in folders for file in sorted(folder.glob("*.log"))]
        return "".join(file.read_text(errors="replace") for file in files)

"""One container's way: pull, create, run, run again. Its pod's way is in `pod_worker`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.kubernetes.double.clock import now
from tests.kubernetes.double.environment import ConfigProblem, container_command, container_environment
from tests.kubernetes.double.images import Image
from tests.kubernetes.double.pod_host import PodHost
from tests.kubernetes.double.pod_status import container_status, refresh
from tests.kubernetes.double.processes import ContainerProcess, StartError
from tests.kubernetes.double.resources import JsonObject

__all__ = ["Container"]

_FIRST_BACKOFF_SEC = 10
_LONGEST_BACKOFF_SEC = 300
_MESSAGE_BYTES = 2048


class Container:
    """A container of a pod on a node. `run` blocks; the other methods come from other threads."""

    def __init__(self, host: PodHost, spec: dict[str, Any], *, init: bool = False) -> None:
        self._host = host
        self._spec = spec
        self._name: str = spec["name"]
        self._restart_on_success = host.restart_policy == "Always" and not init
        self._restart_on_failure = host.restart_policy != "Never"
        self._lock = threading.Lock()
        self._process: ContainerProcess | None = None
        self._stopping: float | None = None
        self._oom = False

    @property
    def pid(self) -> int | None:
        """Process id of the command while it runs."""
        process = self._process
        return process.pid if process else None

    def stop(self, grace_sec: float) -> None:
        """End it, now or as soon as it has started: SIGTERM, then SIGKILL after the grace; 0: SIGKILL."""
        with self._lock:
            self._stopping = grace_sec
            if self._process:
                self._process.stop(grace_sec)

    def kill(self, *, oom: bool = False) -> bool:
        """Kill what runs now, as the kernel does; return whether something ran."""
        with self._lock:
            self._oom = oom
            if self._process:
                self._process.kill()
            return self._process is not None

    def run(self) -> int | None:
        """Run it to its end, restarts included; return its exit code, or None when it never ran."""
        image = self._pull()
        restarts = 0
        while image is not None:
            code = self._run_once(image, restarts)
            again = self._restart_on_success if code == 0 else self._restart_on_failure
            if code is None or not again or self._host.ending:
                return code
            restarts += 1
            self._host.events.warning(
                self._host.pod(), "BackOff", f"Back-off restarting failed container {self._name}"
            )
            self._wait_in("CrashLoopBackOff", "back-off restarting failed container", restarts=restarts)
            if self._host.pause(_backoff(restarts)):
                return code
        return None

    def _pull(self) -> Image | None:
        name, attempt = self._spec["image"], 0
        while not self._host.ending:
            image = self._host.image(name)
            if image is not None:
                self._host.events.normal(self._host.pod(), "Pulled", f'Successfully pulled image "{name}"')
                return image
            attempt += 1
            if self._spec.get("imagePullPolicy") == "Never":
                message = f'Container image "{name}" is not present with pull policy of Never'
                self._wait_in("ErrImageNeverPull", message)
                self._host.events.warning(self._host.pod(), "ErrImageNeverPull", message)
                self._host.pause(_backoff(attempt))
                continue
            message = (
                f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": not found'
            )
            self._host.events.normal(self._host.pod(), "Pulling", f'Pulling image "{name}"')
            self._host.events.warning(self._host.pod(), "Failed", f'Failed to pull image "{name}": {message}')
            self._host.events.warning(self._host.pod(), "Failed", "Error: ErrImagePull")
            self._wait_in("ErrImagePull", message)
            if self._host.pause(2):
                break
            back_off = f'Back-off pulling image "{name}"'
            self._wait_in("ImagePullBackOff", f"{back_off}: ErrImagePull: {message}")
            self._host.events.normal(self._host.pod(), "BackOff", back_off)
            self._host.events.warning(self._host.pod(), "Failed", "Error: ImagePullBackOff")
            self._host.pause(_backoff(attempt))
        return None

    def _run_once(self, image: Image, restarts: int) -> int | None:
        created = self._create(image)
        if created is None:
            return None
        command, environment, directory = created
        log, started = self._host.log_file(self._name, restarts), now()
        log.touch()
        try:
            with self._lock:
                if self._host.ending:
                    return None
                self._oom = False
                self._process = process = ContainerProcess(
                    command, environment=environment, directory=directory, log=log
                )
                if self._stopping is not None:
                    process.stop(self._stopping)
        except StartError as error:
            message = (
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                f"exec: {command[0]!r}: {error}"
            )
            self._host.events.warning(self._host.pod(), "Failed", f"Error: {message}")
            self._end(128, "StartError", started, log, message=message)
            return 128
        self._running(started, restarts)
        code = process.wait()
        with self._lock:
            self._process = None
        reason = "OOMKilled" if self._oom else "Completed" if code == 0 else "Error"
        self._end(code, reason, started, log)
        return code

    def _create(self, image: Image) -> tuple[list[str], dict[str, str], Path] | None:
        while not self._host.ending:
            pod = self._host.pod()
            own_folder = self._host.folder / self._name
            for name in ("home", "tmp"):
                (own_folder / name).mkdir(parents=True, exist_ok=True)
            base = {
                "HOME": str(own_folder / "home"),
                "TMPDIR": str(own_folder / "tmp"),
                **image.base_environment(),
                **self._host.service_environment,
            }
            try:
                environment, own = container_environment(self._host.store, pod, self._spec, base)
            except ConfigProblem as problem:
                self._cannot("CreateContainerConfigError", str(problem))
                continue
            if self._host.creation_fails():
                self._cannot("CreateContainerError", "failed to create containerd container: injected fault")
                continue
            command = container_command(self._spec, image, own)
            if not command:
                self._cannot("CreateContainerError", "no command specified")
                continue
            directory = self._spec.get("workingDir") or image.directory or own_folder / "home"
            self._host.events.normal(pod, "Created", f"Created container: {self._name}")
            return command, environment, Path(directory)
        return None

    def _cannot(self, reason: str, message: str) -> None:
        self._wait_in(reason, message)
        self._host.events.warning(self._host.pod(), "Failed", f"Error: {message}")
        self._host.pause(_FIRST_BACKOFF_SEC)

    def _wait_in(self, reason: str, message: str, *, restarts: int | None = None) -> None:
        def write(pod: JsonObject) -> None:
            status = container_status(pod, self._name)
            if restarts is not None:
                status.update(restartCount=restarts, lastState=status["state"])
            status["state"] = {"waiting": {"reason": reason, "message": message}}
            refresh(pod)

        self._host.edit(write)

    def _running(self, started: str, restarts: int) -> None:
        def write(pod: JsonObject) -> None:
            container_status(pod, self._name).update(
                ready=True,
                started=True,
                restartCount=restarts,
                state={"running": {"startedAt": started}},
                containerID=f"double://{pod['metadata']['uid']}/{self._name}/{restarts}",
                imageID=f"double/{self._spec['image']}",
            )
            refresh(pod)

        self._host.edit(write)
        self._host.events.normal(self._host.pod(), "Started", f"Started container {self._name}")

    def _end(self, code: int, reason: str, started: str, log: Path, *, message: str = "") -> None:
        if code and not message and self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            lines = [line.partition(b" ")[2] for line in log.read_bytes().splitlines()[-80:]]
            message = b"\n".join(lines).decode(errors="replace")[-_MESSAGE_BYTES:]
        state = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
        if message:
            state["message"] = message

        def write(pod: JsonObject) -> None:
            container_status(pod, self._name).update(ready=False, started=False, state={"terminated": state})
            refresh(pod)

        self._host.edit(write)


def _backoff(attempt: int) -> float:
    return float(min(_FIRST_BACKOFF_SEC * 2 ** (attempt - 1), _LONGEST_BACKOFF_SEC))

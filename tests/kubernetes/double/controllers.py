"""The loop that lets every controller take its next step, whenever something has changed."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Protocol

from tests.kubernetes.double.store import Store

__all__ = ["ControllerLoop"]

_IDLE_SEC = 0.05


class Reconciler(Protocol):
    """A controller."""

    def reconcile(self) -> None:
        """Take a step towards what the objects say."""
        ...


class ControllerLoop:
    """Runs controllers in one thread. One that fails is told at the end: the double itself is wrong then."""

    def __init__(self, store: Store, controllers: Sequence[Reconciler]) -> None:
        self._store = store
        self._controllers = controllers
        self._stopping = threading.Event()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._thread.start()

    @property
    def stopping(self) -> bool:
        """Whether the cluster ends."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the loop and wait until it has ended."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            version = self._store.version
            for controller in self._controllers:
                try:
                    controller.reconcile()
                except Exception as error:
                    traceback.print_exc(file=sys.stderr)
                    self.errors.append(error)
                    return
            self._store.wait(version, _IDLE_SEC)

"""A double to try things on: `python -m tests.kubernetes.double`, then kubectl with its kubeconfig."""

from __future__ import annotations

import contextlib
import signal

from tests.kubernetes.double.cluster import DoubleCluster

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with DoubleCluster() as cluster, contextlib.suppress(KeyboardInterrupt):
        print(f"export KUBECONFIG={cluster.kubeconfig}\n# image: {cluster.image}; Ctrl-C ends it", flush=True)
        signal.pause()

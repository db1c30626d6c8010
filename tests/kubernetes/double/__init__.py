"""A test double of a Kubernetes cluster: an API server on loopback whose pods are processes of this machine.

The real kubernetes client, dagster-k8s and kubectl talk to it. `DoubleCluster` in `cluster` is the way in:

    with DoubleCluster() as cluster:
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)

What it keeps to: objects, watches, selectors and deletion as an API server has them; strict schemas; Jobs
(plain and Indexed) as Kubernetes 1.32 runs them; scheduling by requests, taints and affinity; a pod's way
through its states; node loss; garbage collection by owner references.

Limits, on purpose:
- Containers share this machine's files, network and host name. Volumes must resolve but are not mounted. Each
  container has a folder of its own for HOME and TMPDIR; each pod has a loopback address of its own as its IP.
- A container's command gets the image's environment and the pod's, nothing of the test's.
- Limits of cpu and memory are not enforced: use the faults. Nor is a securityContext: all run as this user.
- Not there: probes, preStop hooks, sidecars (init containers that go on), RBAC, exec, quotas, routing of
  Services, PodDisruptionBudgets, preemption, podFailurePolicy, backoffLimitPerIndex, successPolicy.
- Linux only (/proc, prctl).
"""

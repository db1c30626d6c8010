"""Tests against a Kubernetes API: the double of `tests.kubernetes.double`, or a real cluster."""

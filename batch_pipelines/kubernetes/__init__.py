"""Jobs on a Kubernetes cluster: what their pods look like, and what becomes of them."""

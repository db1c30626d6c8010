"""Hardware: what a request's replicas need, chosen from the model's own facts and a table of GPU types."""

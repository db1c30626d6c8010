"""The control plane as clients use it: launching, watching and stopping runs over Dagster's GraphQL API.

Nothing here imports Dagster, and no item passes here; those are in the job store.
"""

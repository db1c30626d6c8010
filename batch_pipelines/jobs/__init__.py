"""A job's folder in the job store: names, manifest, claims, parts, progress.

What belongs here is how durable state is named, written and read. The work itself (validating,
sharding, inferring, merging) is in `batch_pipelines.stages`.
"""

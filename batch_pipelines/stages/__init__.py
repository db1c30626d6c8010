"""The four stages of a job, in order: validate, shard, infer, merge.

Each module does one stage's work on a job's folder and knows nothing of Dagster; `batch_pipelines.ops`
says how they connect.
"""

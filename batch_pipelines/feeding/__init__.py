"""Keeping one engine busy: shards in, requests to the engine, records out.

What an item's request and record look like is in `batch_pipelines.translation` and
`batch_pipelines.records`; how durable state is kept is in `batch_pipelines.jobs`.
"""

"""Dagster resources: the job store, the engine, and the values passed between steps.

Each is a thin, configurable wrapper; what it hands out is a plain object of `batch_pipelines`.
"""

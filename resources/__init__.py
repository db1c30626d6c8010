"""Dagster resources: the job store, the engine, and the values passed between steps.

They are plain objects, bound when the definitions are made. A `ConfigurableResource` would take its
settings from a run's launch config, where whoever launches could widen what requests may read or run.
"""

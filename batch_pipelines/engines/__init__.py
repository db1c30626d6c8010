"""Engines: what turns one request body into one reply body, behind the `Engine` protocol.

Nothing here knows of shards, jobs, storage or Dagster.
"""

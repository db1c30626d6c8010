"""Offline LLM inference on Dagster: one batch-completions request in, one complete output file out."""

"""Benchmarks: separate commands, see README.md."""

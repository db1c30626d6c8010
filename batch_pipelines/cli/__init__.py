"""The command line. Commands say what to do; what they show and how they wait is beside them.

Nothing here imports Dagster, torch or vLLM: those run in other processes, and a command should
answer at once.
"""

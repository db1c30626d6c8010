"""Letting a model run code between rounds of generation: `tool_config`, with the tool `code_evaluator`.

The rounds are in `loop`; how the code is kept apart from everything else is in `sandbox`. Nothing here runs a
model's code outside the sandbox.
"""

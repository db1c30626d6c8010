"""Checks of items against the model they are meant for, before any engine starts.

`ModelPreflight` (in `model_preflight`) is given a checkpoint's small files and the engine's settings, and
says of each item whether the engine would refuse it, or be killed, blocked or slowed down by it. `check_job`
(in `job`) says the same of a job as a whole. What can be told from an item alone, whatever the model, is in
`batch_pipelines.translation`.

Grammars, templates and long texts are tried in a helper process (`child`, started by `helper` when the first
such item comes) under limits on time and memory: what hangs or kills it would have hung or killed the engine.
The modules that run in it are `child`, `conversation`, `followers`, `grammars`, `json_features`, `probe`,
`rendering` and `tokens`; the other modules import none of the engine's libraries.
"""

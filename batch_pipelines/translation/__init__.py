"""From an item to the request an engine takes, and what must be done to the reply.

`table` has one rule for each field of each kind of item; the rules themselves lie in a module for each
group of fields, and what an emulated field does to the reply in `rewrites`. Checks that need the model
(its context, its template, its vocabulary) are in `batch_pipelines.preflight`; how a reply becomes a record
is in `batch_pipelines.records`.
"""

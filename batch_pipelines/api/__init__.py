"""The wire types of batch completions: what a request, an item, a job and an output record look like.

Only shapes and their checks belong here; nothing in this package reads storage, talks to an engine or
knows Dagster. Import from the modules: `api.parse` turns bytes into a request, `api.items` checks the
lines of an input file, `api.schema` prints the JSON Schemas.
"""

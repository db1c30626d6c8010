"""Input files of any accepted form as one stream of raw items.

Belongs here: decompression, telling the forms apart, where an item starts and ends. Does not belong here:
whether an item is valid (the caller parses each one) or where files are (storage). Import from
`batch_pipelines.inputs.reader`.
"""

"""Objects in local folders and object stores, behind one class and one allow-list.

Belongs here: addresses, what may be touched, bytes in and out. Does not belong here: what the bytes mean.
Import from `batch_pipelines.storage.object_storage`.
"""

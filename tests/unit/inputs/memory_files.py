"""A storage for these tests: files in memory that give a chosen number of bytes per read."""

from __future__ import annotations

import io
from typing import BinaryIO


class DribblingFile(io.BytesIO):
    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._most if size is None or size < 0 else min(size, self._most)
        return super().read(wanted)


class MemoryFiles:
    def __init__(self, files: dict[str, bytes], most_per_read: int = 2**16) -> None:
        self.files = files
        self.most_per_read = most_per_read
        self.opened: list[DribblingFile] = []

    def open_reader(self, uri: str) -> BinaryIO:
        self.opened.append(DribblingFile(self.files[uri], self.most_per_read))
        return self.opened[-1]

"""Where the bytes of an open file come from, for `penstock.data.cache.program.files`."""

from __future__ import annotations

from penstock.data.cache.client import Answer, CacheClient
from penstock.data.cache.program.ranges import Wanted


class CacheSource:
    """A file below a path of the cache of this node."""

    def __init__(self, client: CacheClient, path: str, file: str) -> None:
        self._client = client
        self._path = path
        self._file = file

    def in_ranges(self, size: int) -> bool:
        """Whether it is kept in ranges when it has so many bytes."""
        return self._client.in_ranges(self._path, size)

    def fetch(self, descriptor: int) -> Answer:
        """What the cache says of it, open."""
        return self._client.fetch(descriptor, self._path, self._file)

    def fetch_range(self, descriptor: int, wanted: Wanted) -> Answer:
        """What the cache says of what is around a place in it, open."""
        return self._client.fetch(descriptor, self._path, self._file, wanted)

    def note_unseen(self) -> None:
        """It is read in a way that the cache has no part in."""
        self._client.note_unseen(self._path)

    def note_storage(self, size: int, begun: float, of_range: bool) -> None:
        """So many bytes of it were read from storage since then."""
        self._client.note_storage(self._path, size, begun, of_range=of_range)

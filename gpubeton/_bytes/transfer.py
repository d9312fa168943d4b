"""Transfer: the requests for files that are not on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Transfer:
    """Loads until now."""

    requests: int = 0
    nbytes: int = 0  # that they brought
    cached_nbytes: int = 0  # that were asked for and in the cache
    is_all_cached: bool = False  # the files are mapped from the cache: nothing more is counted

    def count(self, nbytes: int) -> None:
        """Count a request."""
        self.requests += 1
        self.nbytes += nbytes

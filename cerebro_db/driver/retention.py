"""Which states must stay although their configuration has gone on: those still to be scored."""

from __future__ import annotations


class Retention:
    """Versions of states that were kept for scoring, and when nothing needs them any more."""

    def __init__(self) -> None:
        self._kept: set[tuple[int, int]] = set()
        self._scored: set[tuple[int, int]] = set()
        self._done: dict[int, int] = {}

    def keep(self, mst_key: int, version: int) -> bool:
        """A hop from ``version`` starts; true if the version must outlive it."""
        if (mst_key, version) in self._scored:
            return False
        self._kept.add((mst_key, version))
        return True

    def scored(self, mst_key: int, version: int) -> None:
        """A version has been scored."""
        self._scored.add((mst_key, version))

    def is_scored(self, mst_key: int, version: int) -> bool:
        """Whether a version has been scored."""
        return (mst_key, version) in self._scored

    def done(self, mst_key: int, version: int) -> None:
        """A configuration's newest committed version."""
        self._done[mst_key] = version

    def useless(self) -> list[tuple[int, int]]:
        """Take out the kept versions that are scored and have a successor."""
        found = sorted(
            (key, version)
            for key, version in self._kept & self._scored
            if self._done.get(key, -1) > version
        )
        self._kept.difference_update(found)
        return found

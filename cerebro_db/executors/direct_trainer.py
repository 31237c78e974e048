"""The trainer of a direct worker: the same process as beside a server, started by a keeper of this machine.

A direct worker is to it what a process of a server is: it hands over rows, and waits for what comes of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.errors import CerebroError, TrainerLost
from cerebro_db.postgres.dialects.statements.direct import Chunk
from cerebro_db.protocol import StateReport, report_of
from cerebro_db.relay import keepers
from cerebro_db.relay.keepers import CannotStart, Installation, Process
from cerebro_db.relay.wire import TRAINER, Closed

BEGIN, STATE, BUFFER = 0, 1, 2  # kinds of rows
# Each of which was idle, and has limits that hold no longer.
_MOST_TRAINERS = 100


class TrainerFailed(CerebroError):
    """Error of a trainer that could not make a hop.

    Args:
        failure: message, SQLSTATE and hint.
    """

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["message"], failure["hint"])
        self.sqlstate = failure["sqlstate"]


@dataclass(frozen=True)
class Row:
    """A row of the aggregate that trains; what a kind of row does not have is None."""

    kind: int
    task: str | None = None
    state: bytes | None = None
    weights: bytes | None = None
    subepoch: int | None = None
    buffer_id: int | None = None
    values: list[Any] = field(default_factory=lambda: [None] * 4)


class DirectTrainer:
    """Starts a trainer when it is needed, and another one where that has ended.

    Args:
        installation: of the package on this machine.
        owner: names whose idle trainers may be used.
        listen: called 20 times a second while the trainer is waited for; raises to end that.

    Attributes:
        kept: names of the partitions that it has in memory.
    """

    def __init__(
        self, installation: Installation, owner: list[str], listen: Callable[[], None]
    ) -> None:
        self._installation, self._owner, self._listen = installation, owner, listen
        self._process: Process | None = None
        self._preparation: tuple[str, list[Any], str, str] | None = None
        self.kept: set[str] = set()

    def start(self, threads: int, use_gpus: bool) -> None:
        """Have a trainer begin, whose keeper may have to import TensorFlow first.

        Args:
            threads: that it is going to compute with.
            use_gpus: whether it is going to do so on GPUs.
        """
        self._process = self._connected([threads, use_gpus])

    def prepare(
        self, text: str, threads: int, use_gpus: bool, functions: str, network: str
    ) -> dict[str, Any]:
        """Prepare a trainer; returns its facts for the manifest.

        Args:
            text: JSON of its limits and settings.
            threads: that it computes with.
            use_gpus: whether it does so on GPUs.
            functions: JSON of the registered ones.
            network: JSON of the settings of its network.
        """
        if self._preparation is not None:
            self.close()
        self._preparation = text, [threads, use_gpus], functions, network
        facts: dict[str, Any] = json.loads(self._prepared())
        return facts

    def train(self, rows: Iterable[Row]) -> tuple[StateReport, list[Chunk]]:
        """Make a hop; its report, and the chunks of the state that it leaves.

        Raises:
            TrainerFailed: it cannot be made.
            TrainerLost: the trainer has ended.
        """
        if self._process is None:
            self._prepared()
        try:
            token: int | None = None
            for row in rows:
                token = self._step(token, row)
            self._call("training.train_final", token)
            chunks: list[Chunk] = [tuple(one) for one in self._call("training.saved_state", token)]
            report = report_of(chunks[0][2])
        except BaseException:
            self.kept = set()
            raise
        assert isinstance(report, StateReport)
        self.kept = set(report.kept)
        return report, chunks

    def close(self) -> None:
        """Leave the trainer, whatever it does."""
        if self._process is not None:
            self._process.close()
        self._process, self.kept = None, set()

    # -- inside ------------------------------------------------------------------------
    def _prepared(self) -> str:
        assert self._preparation is not None
        text, like, functions, network = self._preparation
        for _ in range(_MOST_TRAINERS):
            self._process = self._process or self._connected(like)
            answer = self._exchange(
                "training.prepare_process", [text], functions=functions, network=network
            )
            if not answer.get("anew"):
                break
            self.close()
        return str(self._result(answer))

    def _connected(self, like: list[Any] | None) -> Process:
        session = {"pid": os.getpid(), "segment": None, "asks_nothing": True}
        hello = {"like": like, "owner": self._owner, "session": session}
        try:
            return keepers.connected(self._installation, TRAINER, hello, self._listen)
        except CannotStart as error:
            raise TrainerLost(error.message, hint=error.hint) from None

    def _step(self, token: int | None, row: Row) -> int:
        assert self._process is not None
        arguments = [
            token, row.kind, row.task, row.state, row.weights, row.subepoch, row.buffer_id, *row.values
        ]  # fmt: skip
        # Nothing comes unasked but that a row has failed, or the end.
        if row.kind == BEGIN or self._process.has_message:
            return int(self._call("training.train_step", *arguments, begins=row.kind == BEGIN))
        assert token is not None
        self._exchange("training.train_step", arguments, waits=False)
        return token

    def _call(self, name: str, *arguments: Any, begins: bool = False) -> Any:
        return self._result(self._exchange(name, list(arguments), begins=begins))

    def _exchange(
        self,
        name: str,
        arguments: list[Any],
        *,
        waits: bool = True,
        begins: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        process = self._process
        assert process is not None
        call = {
            "call": name, "arguments": arguments, "named": {}, "waits": waits, "begins": begins, **more
        }  # fmt: skip
        try:
            process.send(call)
            if not waits:
                return {}
            while True:
                answer = process.receive()
                if "result" in answer or "error" in answer:
                    break
        except Closed:
            pid = process.pid
            self.close()
            raise self._lost(pid) from None
        except BaseException:  # it is at something that nobody wants any more
            self.close()
            raise
        if answer.get("ends"):
            self.close()
        return answer

    def _result(self, answer: dict[str, Any]) -> Any:
        if "error" not in answer:
            return answer["result"]
        error = answer["error"]
        if error.get("log"):
            sys.stderr.write(error["log"])
        raise TrainerFailed(error)

    def _lost(self, pid: int) -> TrainerLost:
        found = keepers.postmortem(self._installation, TRAINER, pid, lambda: None)
        return TrainerLost(f"the trainer {found or 'has ended'}")

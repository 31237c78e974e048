"""Entries of workers that score (the aggregate cerebro_measure) and that predict."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import InvalidArgument, InvalidData, RunFailed
from cerebro_db.server.computing import Tick, compute, computing
from cerebro_db.server.entry import entry
from cerebro_db.server.joined import take_joined
from cerebro_db.server.memory import WorkerMemory, recall
from cerebro_db.server.training import PREPARE, checked, prepared
from cerebro_db.training.buffers import decode_features, decode_targets, parse_bytes
from cerebro_db.training.fields import Fields

if TYPE_CHECKING:
    from cerebro_db.training.scores.prediction import Answers, Prediction

BEGIN, CONFIGURATION = 0, 1  # kinds of rows; the others are buffers


@entry
def measure_step(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    kind: int | None,
    task: str | None,
    state: bytes | None,
    buffer_id: int | None,
    x: bytes | None,
    x_shape: list[int] | None,
    y: bytes | None,
    y_shape: list[int] | None,
) -> int:
    """Begin a scan, add a configuration, or feed it with a buffer."""
    if kind == PREPARE:
        return compute(plpy, lambda tick: prepared(plpy, gd, task or "", tick).token)
    memory = recall(gd)

    def work(tick: Tick) -> int:
        from cerebro_db.training.scores.scan import Scan
        from cerebro_db.training.tasks import scan_of

        if kind == BEGIN:
            scan_task = scan_of(task or "", memory.run_id)
            return memory.begin(Scan(scan_task, memory.scorers, memory.cache, tick))
        scan = memory.current(token, Scan)
        if kind == CONFIGURATION:
            scan.add(task or "", state or b"", memory.architectures)
        else:
            scan.feed(
                checked("buffer_id", buffer_id, 0, 2**31 - 1),
                decode_features(x, x_shape, scan.inputs),
                decode_targets(y, y_shape, scan.targets),
            )
        return memory.token

    return compute(plpy, work)


@entry
@computing
def measure_final(tick: Tick, gd: dict[str, Any], token: int | None) -> str:
    """End a scan: sums of loss and metrics as JSON."""
    from cerebro_db.training.scores.scan import Scan

    memory = recall(gd)
    return str(memory.end(token, Scan).finish(memory.kept))


@entry
@computing
def try_scores(tick: Tick, gd: dict[str, Any], task: str | None) -> str:
    """Find out which configurations cannot be scored."""
    from cerebro_db.training.scores.scan import try_scores as tried

    memory = recall(gd)
    return tried(task or "", memory.scorers, memory.architectures)


@entry
@computing
def combine(tick: Tick, gd: dict[str, Any], task: str | None) -> str:
    """Add up the sums of all partitions."""
    from cerebro_db.training.scores.scan import combine as combined

    return combined(task or "", recall(gd).architectures)


@entry
@computing
def begin_prediction(tick: Tick, gd: dict[str, Any], task: str | None, state: int | None) -> int:
    """Load a model into this worker; returns what names it in the calls that follow."""
    from cerebro_db.training.scores.contributions import prediction_of

    memory = recall(gd)
    data = take_joined(gd, state)
    known = memory.scorers, memory.architectures
    return memory.begin(prediction_of(task or "", data, *known, tick))


@entry
@computing
def extend_prediction(
    tick: Tick, gd: dict[str, Any], token: int | None, task: str | None, state: int | None
) -> int:
    """Load one more model; returns the same token."""
    data = take_joined(gd, state)
    _current(gd, token).extend(task or "", data)
    return recall(gd).token


@entry
def predict_batch(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    data: bytes | None,
    count: int | None,
    known: int | None,
) -> Answers:
    """The predictions for one batch of rows."""
    count = checked("count", count, 1, 2**31 - 1)
    if known != count:
        raise InvalidData("a row has no id")
    rows = data or b""
    return compute(plpy, lambda tick: _current(gd, token).batch(rows, count, plpy.notice))


@entry
@computing
def predict_buffer(
    tick: Tick, gd: dict[str, Any], token: int | None, data: bytes | None, count: int | None
) -> Answers:
    """The predictions for rows of a packed table."""
    count = checked("count", count, 1, 2**31 - 1)
    return _current(gd, token).buffer(data or b"", count)


def _current(gd: dict[str, Any], token: int | None) -> Prediction:
    from cerebro_db.training.scores.prediction import Prediction

    work: Prediction = recall(gd).current(token, Prediction)
    return work


MODEL, ROW, BUFFER, END = 0, 1, 2, 3  # kinds of rows
Predicted = dict[str, Any]
_MOST_MODELS = 2**20


@dataclass
class _Model:
    """A model whose state comes in chunks, in any order."""

    task: str = ""
    chunks: dict[int, bytes] = field(default_factory=dict)

    def state(self) -> bytes:
        """The whole state."""
        chunks = [self.chunks[number] for number in sorted(self.chunks)]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


@dataclass
class _Stream:
    """Progress of one statement so far."""

    models: dict[int, _Model] = field(default_factory=dict)
    prediction: Prediction | None = None
    ranks: int = 1
    inputs: int = 1

    def opened(self, memory: WorkerMemory, tick: Tick) -> Prediction:
        """The models, loaded when all of them are there."""
        from cerebro_db.training.scores.contributions import prediction_of

        if self.prediction is None:
            if not self.models:
                raise RunFailed("got rows to predict before any model")
            first, *more = [self.models.pop(number) for number in sorted(self.models)]
            known = memory.scorers, memory.architectures
            self.prediction = prediction_of(first.task, first.state(), *known, tick)
            for model in more:
                self.prediction.extend(model.task, model.state())
        return self.prediction


@entry
def predict_spread(
    plpy: Any,
    gd: dict[str, Any],
    kind: int | None,
    number: int | None,
    chunk: int | None,
    task: str | None,
    data: bytes | None,
    name: str | None,
    names: list[str],
    sizes: list[int],
    rows: bytes,
) -> Predicted | None:
    """Take a row of a statement, or a batch of those to predict; what is predicted.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
        gd: the dictionary of the process.
        kind: of the row.
        number: of a model, or of the rows in a batch or a piece of a buffer.
        chunk: of a model's state.
        task: what makes the process a worker, or what it must know of a model.
        data: a chunk of a state, the features of a row, or those of a piece of a buffer.
        name: the id of a row or of a piece.
        names, sizes, rows: ids, bytes and features of the rows that came before and with this one.
    """
    if kind == PREPARE:
        compute(plpy, lambda tick: prepared(plpy, gd, task or "", tick).begin(_Stream()))
        return None
    memory = recall(gd)
    stream: _Stream = memory.current(memory.token, _Stream)
    if kind == MODEL:
        _take_model(stream, number, chunk, task, data)
        return None
    if kind == ROW:
        _check_row(data, name)
        return _batch(plpy, memory, stream, names, sizes, rows)
    if kind == BUFFER:
        count = checked("number", number, 1, 2**31 - 1)
        return _piece(plpy, memory, stream, data or b"", count, name)
    if kind != END:
        raise InvalidArgument(f"kind: got {kind}; allowed: {PREPARE} to {END}")
    answers = _batch(plpy, memory, stream, names, sizes, rows) if names else None
    memory.end(memory.token, _Stream)
    return answers


def _take_model(
    stream: _Stream, number: int | None, chunk: int | None, task: str | None, data: bytes | None
) -> None:
    number = checked("number", number, 0, _MOST_MODELS)
    model = stream.models.setdefault(number, _Model())
    model.chunks[checked("chunk", chunk, 0, 2**31 - 1)] = data or b""
    if task is None:
        return
    model.task = task
    if number == 0:
        from cerebro_db.training.tasks import inputs_of

        given = Fields.parse(task)
        ranks, inputs = given.integers("ranks", 0), inputs_of(given)
        # The rows of several outputs are distinguished by the statement.
        stream.ranks = ranks[0] if len(ranks) == 1 and ranks[0] else 1
        stream.inputs = len(inputs) or 1


def _check_row(data: bytes | None, name: str | None) -> None:
    if name is None or data is None:
        raise InvalidData("a row has no id" if name is None else "a row has no features")


def _batch(
    plpy: Any, memory: WorkerMemory, stream: _Stream, ids: list[str], sizes: list[int], rows: bytes
) -> Predicted:
    """The predictions for the rows that wait."""
    data = rows if stream.inputs == 1 else _by_inputs(rows, sizes, stream.inputs)
    count = len(sizes)
    answers = compute(
        plpy, lambda tick: stream.opened(memory, tick).batch(data, count, plpy.notice)
    )
    if answers[0] is not None:
        ids = [name for name in ids for _ in range(stream.ranks)]
    return _predicted(answers, ids, None, len(ids))


def _by_inputs(rows: bytes, sizes: list[int], inputs: int) -> bytes:
    """Of each input all rows, instead of each row all inputs."""
    ends = list(accumulate(sizes))
    each = [
        parse_bytes(rows[end - size : end], inputs) for size, end in zip(sizes, ends, strict=True)
    ]
    return b"".join(map(b"".join, zip(*each, strict=True)))


def _piece(
    plpy: Any, memory: WorkerMemory, stream: _Stream, data: bytes, count: int, name: str | None
) -> Predicted:
    """The predictions for a piece of a buffer."""
    answers = compute(plpy, lambda tick: stream.opened(memory, tick).buffer(data, count))
    ranks = 1 if answers[0] is None else stream.ranks
    return _predicted(answers, None, name, count * ranks)


def _predicted(answers: Answers, ids: list[str] | None, piece: str | None, rows: int) -> Predicted:
    classes, numbers = answers
    return {"ids": ids, "piece": piece, "rows": rows, "classes": classes, "numbers": numbers}

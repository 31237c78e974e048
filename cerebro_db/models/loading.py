"""Loading a model: checked, built once, and put into an architecture table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from cerebro_db.columns.encoded import Encoding
from cerebro_db.configs.architectures import nets
from cerebro_db.configs.architectures.architecture import with_activations
from cerebro_db.configs.architectures.graphs import Scale
from cerebro_db.configs.architectures.image import ImageNet
from cerebro_db.configs.architectures.limits import read_json
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.architectures.nets import DataShape
from cerebro_db.configs.architectures.tabular import Feature, TabularNet
from cerebro_db.configs.frameworks import check_architecture
from cerebro_db.configs.names import PREFIX
from cerebro_db.errors import (
    CerebroError,
    DuplicateTable,
    InvalidArchitecture,
    InvalidArgument,
    InvalidState,
    WrongObjectType,
)
from cerebro_db.models.architectures import inspect, limits_of, read_file
from cerebro_db.models.target_scales import scale_of
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import lock
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables import libraries
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.postgres.tables.relations import (
    KINDS,
    Relation,
    Use,
    find,
    find_if_there,
    new_table,
    require_text,
)
from cerebro_db.requests.models import FileRequest, ImageRequest, LoadRequest, TabularRequest

ROLE = "model_arch_table"


def load_model(session: Session, pool: SessionPool, request: LoadRequest) -> int:
    """Put a model into an architecture table, which is made if need be; returns the model_id.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        pool: of sessions that look into models, and see no tables.
        request: what to load.

    Raises:
        InvalidArchitecture: the JSON is refused, or no model can be built from it.
        InvalidArgument: the weights are not as many as the architecture has.
        WrongObjectType: the table is of another kind.
    """
    require_text(request.model_arch_table, ROLE)
    if request.model_arch is None:
        raise InvalidArgument("model_arch: got NULL; allowed: the JSON text of a model's to_json()")
    data = _data_shape(session, request)
    named = nets.is_name(request.model_arch)
    if named:
        nets.check_net(request.model_arch)
    else:
        request = _with_activations(session, _filled(session, request, data))
        check_architecture(request.model_arch or "", limits_of(session))
    _target(session, request)  # a wrong name is refused before TensorFlow is loaded
    with control_session(pool, None) as worker:
        if named:
            request = _of_net(worker, request, data)
        facts = _built(worker, request)
    _check_shapes(facts, data)
    return _inserted(session, request, facts)


def _data_shape(session: Session, request: LoadRequest) -> DataShape | None:
    """Shapes that the packed table asks of the model, if one is named."""
    if request.packed_table is None:
        return None
    return _shapes_of(load_packed(session, request.packed_table, "packed_table"))


def _shapes_of(packed: PackedTable) -> DataShape:
    """Shapes of the inputs and targets of a packed table."""
    return DataShape(
        str(packed.relation.name),
        tuple(one.shape for one in packed.inputs),
        tuple(one.num_classes or math.prod(one.shape) for one in packed.targets),
        tuple(one.is_class for one in packed.targets),
    )


def tabular_net(session: Session, request: TabularRequest) -> str:
    """The JSON of a net for the rows and targets of a packed table.

    Args:
        session: sees what the caller does.
        request: which table and what net.

    Raises:
        InvalidArgument: a value is wrong.
        WrongObjectType: the table is not packed.
    """
    given = request.given()
    role = "packed_table"
    text = given.pop(role)
    net = TabularNet(**given)
    net.check()
    packed = load_packed(session, text, role)
    encoding = packed.encoding
    columns: dict[str, list[Feature]] = {one.name: [] for one in packed.inputs}
    if isinstance(encoding, Encoding):
        for piece in encoding.pieces:
            columns[piece.part].append(Feature(piece.column.width, piece.column.ids))
    return net.json_for(_shapes_of(packed), list(columns.values()), _scales(session, packed))


def image_net(session: Session, request: ImageRequest) -> str:
    """The JSON of a net for the images and targets of a packed table.

    Args:
        session: sees what the caller does.
        request: which table and what net.

    Raises:
        InvalidArgument: a value is wrong, or the rows are no images.
        WrongObjectType: the table is not packed.
    """
    given = request.given()
    role = "packed_table"
    text = given.pop(role)
    net = ImageNet(**given)
    net.check()
    packed = load_packed(session, text, role)
    return net.json_for(_shapes_of(packed), _scales(session, packed))


def _scales(session: Session, packed: PackedTable) -> list[Scale | None]:
    return [None if one.is_class else scale_of(session, packed, one) for one in packed.targets]


def _filled(session: Session, request: LoadRequest, data: DataShape | None) -> LoadRequest:
    """The request with the shapes that its JSON leaves open."""
    config = read_json(request.model_arch, limits_of(session))
    if not nets.is_open(config):
        return request
    if data is None:
        raise InvalidArchitecture(
            "model architecture: got an open shape; allowed: every size but the batch fixed",
            hint="packed_table := 'name of a packed table' takes them from there",
        )
    return structs.replace(request, model_arch=json.dumps(nets.filled(config, data)))


def _of_net(worker: Session, request: LoadRequest, data: DataShape | None) -> LoadRequest:
    """The request with the JSON of the net that it names."""
    if data is None or len(data.inputs) != 1 or len(data.units) != 1:
        raise InvalidArgument(
            f"model_arch: got the name {request.model_arch!r}; allowed with packed_table: the name of a "
            "packed table of one input and one target, whose shapes the net is made for"
        )
    values = (request.model_arch, json.dumps(data.inputs[0]), data.units[0], data.classes[0])
    try:
        rows = worker.run("SELECT cerebro._named_model(%s, %s, %s, %s)", values)
    except StatementFailed as failure:
        raise _refusal(failure) from None
    return structs.replace(request, model_arch=rows[0][0])


def _check_shapes(facts: str, data: DataShape | None) -> None:
    """Refuse a model that does not take the rows of the packed table, or tells other outputs."""
    if data is None:
        return
    found = ArchitectureFacts.from_json(facts)
    outputs = tuple(shape[-1] if shape else None for shape in found.output_shapes)
    if found.input_shapes != data.inputs or outputs != data.units:
        # One number tells one of two classes.
        binary = outputs == (1,) and data.units == (2,) and data.classes == (True,)
        if found.input_shapes != data.inputs or not binary:
            raise InvalidArgument(
                f"packed_table: {data.table} has rows of {_listed(data.inputs)} and outputs of "
                f"{_listed(data.units)}; got a model that takes {_listed(found.input_shapes)} and "
                f"makes {_listed(found.output_shapes)}"
            )


def _listed(shapes: Sequence[Any]) -> str:
    return ", ".join(str(list(one) if isinstance(one, tuple) else one) for one in shapes)


def load_model_file(session: Session, pool: SessionPool, request: FileRequest) -> int:
    """Put the model of a ``.keras`` file into an architecture table; returns the model_id.

    Args:
        session, pool: as above.
        request: what to load.

    Raises:
        InvalidArchitecture: the architecture is refused, or no model can be built from it.
        InvalidArgument: the file is no such file, or its weights are not those of the architecture.
        WrongObjectType: the table is of another kind.
    """
    require_text(request.model_arch_table, ROLE)
    if request.file is None:
        raise InvalidArgument("file: got NULL; allowed: the bytes of a .keras or .pt2 file")
    loaded = LoadRequest(request.model_arch_table, "", None, request.name, request.description)
    _target(session, loaded)
    with control_session(pool, None) as worker:
        try:
            text, weights = read_file(worker, request.file)
        except StatementFailed as failure:
            raise _refusal(failure) from None
    return load_model(
        session, pool, structs.replace(loaded, model_arch=text, model_weights=weights)
    )


_EXPRESSIONS = (
    "SELECT name, expression FROM cerebro.registered_functions WHERE expression IS NOT NULL"
)


def _with_activations(session: Session, request: LoadRequest) -> LoadRequest:
    """The request with registered expressions in place of the names of activations.

    So a stored model needs no catalog to be built.
    """
    text = request.model_arch or ""
    if PREFIX not in text and '"function"' not in text:
        return request
    config = read_json(text, limits_of(session))
    known = dict(session.run(_EXPRESSIONS))
    changed = with_activations(config, known)
    return (
        request if changed == config else structs.replace(request, model_arch=json.dumps(changed))
    )


def _target(session: Session, request: LoadRequest) -> tuple[QualifiedName, Relation | None]:
    """The table's name, and the table if there is one."""
    found = find_if_there(session, request.model_arch_table, ROLE, Use.WRITE)
    if found is None:
        try:
            return new_table(session, request.model_arch_table, ROLE, ()), None
        except DuplicateTable:  # another call has made it since, perhaps
            found = find_if_there(session, request.model_arch_table, ROLE, Use.WRITE)
            if found is None:
                raise
    missing = [name for name in libraries.ARCHITECTURE_COLUMNS if not found.has(name)]
    if found.kind not in ("r", "p") or missing:
        lacks = f" without the columns {', '.join(missing)}" if missing else ""
        raise WrongObjectType(
            f"{ROLE}: got {found.name}, a {KINDS[found.kind]}{lacks}; allowed: a "
            f"table with {', '.join(libraries.ARCHITECTURE_COLUMNS)}, or a name that is free",
            hint="cerebro.cerebro_load_model makes the table itself",
        )
    return found.name, found


def _built(session: Session, request: LoadRequest) -> str:
    """The facts of the model, which is built in the worker session."""
    assert request.model_arch is not None
    try:
        return inspect(session, request.model_arch, request.model_weights)
    except StatementFailed as failure:
        raise _refusal(failure) from None


def _refusal(failure: StatementFailed) -> CerebroError:
    """The error of a worker as one of this call."""
    if failure.sqlstate == InvalidArchitecture.sqlstate:
        message = failure.message.removeprefix("InvalidArchitecture: ")
        return InvalidArchitecture(message, failure.hint)
    if failure.sqlstate == InvalidState.sqlstate:  # what it says is about the argument here
        return InvalidArgument(failure.message.removeprefix("InvalidState: "), failure.hint)
    return failure


def _inserted(session: Session, request: LoadRequest, facts: str) -> int:
    name, _ = _target(session, request)
    lock(session, f"models of {name}")
    name, found = _target(session, request)
    if found is None:
        session.run(libraries.create_architectures(name))
    kind, of_facts = _json_types(found)
    values = [request.model_arch, request.model_weights, request.name, request.description]
    rows = session.run(
        libraries.add_architecture(name, kind, of_facts), [*values, facts] if of_facts else values
    )
    return int(rows[0][0])


def _json_types(table: Relation | None) -> tuple[str, str | None]:
    """Of model_arch and model_facts: not every server takes the one type for the other."""
    if table is None:
        return "json", "json"
    kinds = {
        column.name: "jsonb" if column.base_type == "jsonb" else "json" for column in table.columns
    }
    return kinds["model_arch"], kinds.get("model_facts")


def delete_model(session: Session, model_arch_table: str | None, model_id: int | None) -> str:
    """Delete a model, and the table with its last one; returns what was done.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        model_arch_table, model_id: as given.

    Raises:
        InvalidArgument: the table has no such model.
        WrongObjectType: the table is of another kind.
    """
    found = find(session, model_arch_table, ROLE, Use.WRITE)
    missing = [name for name in libraries.ARCHITECTURE_COLUMNS if not found.has(name)]
    if found.kind not in ("r", "p") or missing:
        raise WrongObjectType(
            f"{ROLE}: got {found.name}, a {KINDS[found.kind]}; allowed: a table with "
            f"{', '.join(libraries.ARCHITECTURE_COLUMNS)}",
            hint="cerebro.cerebro_load_model makes such tables",
        )
    lock(session, f"models of {found.name}")
    if not session.run(libraries.delete_architecture(found.name), (model_id,)):
        raise InvalidArgument(
            f"model_id: got {_shown(model_id)}, which {found.name} does not have",
            hint=f"SELECT model_id FROM {found.name} shows those there are",
        )
    # A statement of its own: whether one sees what it does itself depends on the server.
    if session.run(libraries.count_architectures(found.name))[0][0]:
        return f"model {model_id} deleted from {found.name}"
    session.run(f"DROP TABLE {found.name.sql}")
    return f"model {model_id} deleted; {found.name} had no other, and was dropped"


def _shown(value: int | None) -> str:
    return "NULL" if value is None else str(value)

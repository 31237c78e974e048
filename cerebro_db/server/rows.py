"""Entries of cerebro_predict_row: models that stay loaded beside the caller's own session."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import ModelReference, is_registered, model_reference
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidArgument, InvalidData, InvalidState
from cerebro_db.models.registered import RegisteredModel, named_models
from cerebro_db.models.trained import ROLE
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import STATES_SUFFIX
from cerebro_db.postgres.tables.relations import find_if_there, require_text, spellings
from cerebro_db.postgres.tables.search_path import CallerPath
from cerebro_db.postgres.tables.times import Styles
from cerebro_db.requests.predicting import PredictOutputsRequest, PredictRowRequest
from cerebro_db.scoring.prediction_models import Ensemble, models_of_table, shown_classes
from cerebro_db.server import network
from cerebro_db.server.caller import INT4, OID, TEXT, caller_session
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry, entry_of, hinted
from cerebro_db.server.host import Host
from cerebro_db.server.limits import bind
from cerebro_db.server.settings import settings_of

if TYPE_CHECKING:
    from cerebro_db.training.scores.prediction import RowModel


@dataclass(frozen=True)
class NamedVersion:
    """Version that a name means now.

    Attributes:
        key: the number of the version in the database; what it is of never changes.
        reference: the same version, whatever becomes of aliases.
    """

    key: int
    reference: ModelReference


@dataclass
class Versions:
    """The plans of a session, by the form of the name."""

    plans: dict[str, Any] = field(default_factory=dict)

    def named(self, plpy: Any, reference: ModelReference) -> NamedVersion | None:
        """The version that the role that calls now may use; None where there is none."""
        form, value = _form(reference)
        if form not in self.plans:
            sql = _NAMED_VERSION.format(**_FORMS_OF_NAMES[form])
            self.plans[form] = plpy.prepare(sql, [TEXT] * 3)
        rows = plpy.execute(self.plans[form], [reference.name, reference.owner, value])
        if not rows:
            return None
        return NamedVersion(int(rows[0]["key"]), reference.at(int(rows[0]["version"])))


def _form(reference: ModelReference) -> tuple[str, str | None]:
    if reference.alias is not None:
        return "alias", reference.alias
    if reference.version is not None:
        return "version", str(reference.version)
    return "latest", None


# A caller's search path could bring in operators of others: every one has its schema.
_NAMED_VERSION = """
SELECT v.mst_key AS key, v.version
  FROM cerebro._usable_models m
  JOIN cerebro._usable_versions v ON v.model_id OPERATOR(pg_catalog.=) m.model_id{join}
 WHERE m.name OPERATOR(pg_catalog.=) $1
   AND CASE WHEN $2 IS NULL THEN m.owner OPERATOR(pg_catalog.=) cerebro._role()
       ELSE pg_catalog.pg_get_userbyid(m.owner)::pg_catalog.text OPERATOR(pg_catalog.=) $2 END
   AND {condition}
 ORDER BY v.version USING OPERATOR(pg_catalog.>) LIMIT 1
"""
_FORMS_OF_NAMES = {
    "latest": {"join": "", "condition": "$3 IS NULL"},
    "version": {"join": "", "condition": "v.version OPERATOR(pg_catalog.=) $3::pg_catalog.int4"},
    "alias": {
        "join": """
  JOIN cerebro._usable_aliases a ON a.model_id OPERATOR(pg_catalog.=) v.model_id
   AND a.version OPERATOR(pg_catalog.=) v.version""",
        "condition": "a.alias OPERATOR(pg_catalog.=) $3",
    },
}
R = TypeVar("R")


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to be ensemble.

    Attributes:
        model: what computes.
    """

    model: RowModel

    def ask(self, plpy: Any, question: Callable[[RowModel], R]) -> R:
        """Ask the model."""
        return compute(plpy, lambda tick: question(self.model))


def read_model(session: Session, text: str, mst_key: int | None) -> tuple[Ensemble, bytes]:
    """Facts of a model of a table, and its state."""

    table = named_models(session, text)
    if mst_key is not None:
        table.check_key(mst_key)
    key = table.only_key() if mst_key is None else mst_key
    ensemble = models_of_table(session, table, [key])
    sql = f"SELECT s.state FROM {table.states.sql} s WHERE s.mst_key = %s ORDER BY s.chunk"
    chunks = [row[0] for row in session.run(sql, (key,))]
    if not all(isinstance(chunk, bytes | memoryview) for chunk in chunks):
        raise InvalidState(f"{table.states}: got NULL for a chunk of the state of {key}")
    return ensemble, b"".join(chunks)


def built(plpy: Any, ensemble: Ensemble, data: bytes, settings: Settings) -> LoadedModel:
    """The model, ready to be ensemble."""
    # Elsewhere this process reads models through sessions of its own.
    memory = bind(settings, connects=plpy.asks_nothing)

    def work(tick: Tick) -> RowModel:
        from cerebro_db.training.environment import configure_once

        configure_once(threads=1)
        from cerebro_db.training.scores.prediction import RowModel
        from cerebro_db.training.tasks import Architectures

        known = Architectures(ArchitectureLimits.of(settings), memory)
        task, classes = ensemble.members[0].task, ensemble.class_values
        return RowModel(
            task,
            data,
            known,
            ensemble.names,
            classes,
            ensemble.shapes,
            ensemble.divisor,
            ensemble.class_kinds,
        )

    return LoadedModel(compute(plpy, work))


_KEY = "cerebro.rows"
_SHOWN_KEY = "cerebro.rows_shown"
_SHOWN = "SELECT $1::{}::pg_catalog.text AS shown"
_MOST_MODELS = 16
_UNDEFINED = ("42P01", "42703", "3F000", "42602")
_OF_NAMES_AND_RIGHTS = ("42", "3F")
Answer = tuple[str | None, float | None, list[float]]


@entry
@hinted(PredictRowRequest.function.name)
def predict_row(plpy: Any, gd: dict[str, Any], given: dict[str, Any], is_whole: bool) -> Answer:
    """Ask a model about one row.

    Args:
        given: arguments of the request.
        is_whole: whether the features are of a type, or of values, that are whole numbers only.
    """
    request = PredictRowRequest(**given)
    text, features = require_text(request.model_table, ROLE), request.features
    if features is None:
        raise InvalidData(
            "features: got NULL; allowed: no NULL",
            hint="leave such rows out: SELECT ... WHERE features IS NOT NULL",
        )
    loaded = _model(plpy, gd, text, request.mst_key)
    answer = loaded.ask(plpy, lambda model: model.answer(features, plpy.notice, is_whole=is_whole))
    return _shown(plpy, gd, loaded.model.class_kinds, [answer])[0]


@entry_of(PredictOutputsRequest)
def predict_outputs(
    plpy: Any, gd: dict[str, Any], request: PredictOutputsRequest
) -> list[tuple[Any, ...]]:
    """Ask a model of several inputs or outputs about one row."""
    text = require_text(request.model_table, ROLE)
    if request.features is None:
        return []
    inputs = _inputs(request.features)
    loaded = _model(plpy, gd, text, request.mst_key)
    answers = loaded.ask(plpy, lambda model: model.answers(inputs, plpy.notice))
    answers = _shown(plpy, gd, loaded.model.class_kinds, answers)
    return [(name, *answer) for name, answer in zip(loaded.model.names, answers, strict=True)]


def _shown(
    plpy: Any, gd: dict[str, Any], kinds: Sequence[str | None], answers: list[Answer]
) -> list[Answer]:
    """The answers with dates and times as the caller's session shows them."""
    if not any(kinds):
        return answers
    plans = gd.setdefault(_SHOWN_KEY, {})
    shown = []
    for (value, prob, numbers), kind in zip(answers, kinds, strict=True):
        if kind is not None and value is not None:
            if kind not in plans:
                plans[kind] = plpy.prepare(_SHOWN.format(kind), [TEXT])
            value = plpy.execute(plans[kind], [value])[0]["shown"]
        shown.append((value, prob, numbers))
    return shown


def _model(plpy: Any, gd: dict[str, Any], text: str, mst_key: int | None) -> LoadedModel:
    if plpy.asks_nothing:  # where statements of this session may fail in ways that end it
        return model_apart(plpy, gd, text, mst_key)
    kept: _Kept = gd.setdefault(_KEY, _Kept())
    return kept.model(plpy, text, mst_key)


def _inputs(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise InvalidArgument(
            f"features: got {shown(text)}; allowed: a JSON array with an array for each input",
            hint="json_build_array(first, second) makes one",
        )
    return found


@dataclass(frozen=True)
class _Table:
    """A model table as it was found, and plans that find it again together with a model of it.

    Attributes:
        oid: of the table.
        names: what its name may mean.
    """

    oid: int
    names: list[str]
    plan_of_key: Any
    plan_of_only: Any

    @classmethod
    def found(cls, plpy: Any, oid: int, names: list[str]) -> _Table:
        """The table of this number."""
        row = plpy.execute(plpy.prepare(_NAME, [OID]), [oid])[0]
        states = QualifiedName(row["schema"], row["name"]).suffixed(STATES_SUFFIX)
        with caller_session(plpy) as session:  # before anything of it is read
            find_if_there(session, states.text, ROLE)
        sql = _VERSION.format(states.text)
        return cls(
            oid,
            names,
            plpy.prepare(sql + _OF_KEY, [TEXT, TEXT, INT4]),
            plpy.prepare(sql + " LIMIT 2", [TEXT, TEXT]),
        )

    def version(self, plpy: Any, mst_key: int | None) -> tuple[Any, ...] | None:
        """Role, table, and what is another one as soon as the state is; None where there is no such model.

        None as well where the name means another table now. The state's table is read with the
        rights of the role that calls now.
        """
        if mst_key is None:
            rows = plpy.execute(self.plan_of_only, self.names)
        else:
            rows = plpy.execute(self.plan_of_key, [*self.names, mst_key])
        found = tuple(rows[0].values()) if len(rows) == 1 else None
        return found if found is not None and found[0] == self.oid else None


@dataclass
class _Kept:
    """Memory of a session: tables by name, models by version, the least recently used first."""

    versions: Versions = field(default_factory=Versions)
    tables: dict[str, _Table] = field(default_factory=dict)
    models: OrderedDict[tuple[Any, ...], LoadedModel] = field(default_factory=OrderedDict)

    def model(self, plpy: Any, text: str, mst_key: int | None) -> LoadedModel:
        """The model of a name; loaded where this role has not, or where it was replaced."""
        text, key = self._found(plpy, text, mst_key)
        if key is None:  # none, as is reported; or made in between, and the next call finds it
            return _loaded(plpy, text, mst_key)
        if key not in self.models:
            model = _loaded(plpy, text, mst_key)
            while len(self.models) >= _MOST_MODELS:
                self.models.popitem(last=False)
            self.models[key] = model
        self.models.move_to_end(key)
        return self.models[key]

    def _found(
        self, plpy: Any, text: str, mst_key: int | None
    ) -> tuple[str, tuple[Any, ...] | None]:
        """Name of what is meant, and its key; None where there is none, or no right to it."""
        if is_registered(text):
            named = self.versions.named(plpy, model_reference(text, ROLE))
            # An alias may move before the version is read.
            return (text, None) if named is None else (str(named.reference), (named.key, mst_key))
        version = self._known_version(plpy, text, mst_key) or self._version(plpy, text, mst_key)
        return text, None if version is None else (mst_key, *version)

    def _known_version(self, plpy: Any, text: str, mst_key: int | None) -> tuple[Any, ...] | None:
        """The version by one statement, where the name means what it meant; None elsewhere."""
        if text not in self.tables:
            return None
        try:
            return self.tables[text].version(plpy, mst_key)
        except plpy.SPIError as error:  # the table may not even be the one that is meant now
            if error.sqlstate[:2] not in _OF_NAMES_AND_RIGHTS:
                raise
        return None

    def _version(self, plpy: Any, text: str, mst_key: int | None) -> tuple[Any, ...] | None:
        self.tables.pop(text, None)
        first, *others = spellings(text)
        names = [first, *(others or [first])]
        try:
            oid = plpy.execute(plpy.prepare(_PLACE, [TEXT, TEXT]), names)[0]["oid"]
            if oid is None:
                return None
            table = _Table.found(plpy, int(oid), names)
            version = table.version(plpy, mst_key)
        except plpy.SPIError as error:
            if error.sqlstate not in _UNDEFINED:
                raise
            return None
        if len(self.tables) >= _MOST_MODELS:
            self.tables.clear()
        self.tables[text] = table
        return version


# A caller's search path decides about names only: every operator has its schema.
_OID = """
COALESCE(pg_catalog.to_regclass($1), pg_catalog.to_regclass($2))::pg_catalog.oid::pg_catalog.int8
"""
_PLACE = f"SELECT {_OID} AS oid"
_NAME = """
SELECT n.nspname AS schema, c.relname AS name
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.oid
"""
_VERSION = f"""
SELECT {_OID} AS oid, current_user::pg_catalog.text AS role,
       s.tableoid::pg_catalog.int8 AS tableoid, s.mst_key, s.xmin::pg_catalog.text AS xmin,
       s.ctid::pg_catalog.text AS ctid
  FROM {{}} s WHERE s.chunk OPERATOR(pg_catalog.=) 0
"""
_OF_KEY = " AND s.mst_key OPERATOR(pg_catalog.=) $3"


def _loaded(plpy: Any, text: str, mst_key: int | None) -> LoadedModel:
    """A model with all that is needed to ask it, read with the caller's rights."""
    settings = settings_of(plpy)
    with caller_session(plpy) as session:
        ensemble, data = read_model(session, text, mst_key)
    return built(plpy, ensemble, data, settings)


_APART_KEY = "cerebro.rows_apart"
_Place = tuple[str, CallerPath, Styles, str, int | None]


@dataclass
class _KeptApart:
    """A model, which version it is, and the statement that asked for that."""

    model: LoadedModel
    version: tuple[Any, ...]
    statement: int


def model_apart(plpy: Any, gd: dict[str, Any], text: str, mst_key: int | None) -> LoadedModel:
    """The model of a table, loaded where it has not been, or where it was replaced."""
    network.require()
    host = Host.of(plpy, gd)
    kept: OrderedDict[_Place, _KeptApart] = gd.setdefault(_APART_KEY, OrderedDict())
    place = (host.pool.dsn, host.search_path, host.styles, text, mst_key)
    found, statement = kept.get(place), plpy.statement_began()
    if found is None or found.statement != statement:
        kept.pop(place, None)
        found = kept[place] = _current_apart(host, found, text, mst_key, statement)
        while len(kept) > _MOST_MODELS:
            kept.popitem(last=False)
    return found.model


def _current_apart(
    host: Host, known: _KeptApart | None, text: str, mst_key: int | None, statement: int
) -> _KeptApart:
    with control_session(host.pool, host.search_path) as session:
        version = _version_apart(session, text, mst_key)
        if known is not None and known.version == version:
            return _KeptApart(known.model, version, statement)
        settings = Catalog(session).settings()
        ensemble, data = read_model(session, text, mst_key)
        kinds, values = ensemble.class_kinds, ensemble.class_values
        values = shown_classes(session, values, kinds, host.styles)
        ensemble = replace(
            ensemble, class_values=values, class_kinds=()
        )  # nothing is left to be shown
    return _KeptApart(built(host.plpy, ensemble, data, settings), version, statement)


def _version_apart(session: Session, text: str, mst_key: int | None) -> tuple[Any, ...]:
    """Version of a model: another one as soon as the state is."""
    table = named_models(session, text)
    if mst_key is not None:
        table.check_key(mst_key)
    key = table.only_key() if mst_key is None else mst_key
    if isinstance(table, RegisteredModel):  # a version never changes
        return (key,)
    rows = session.run(
        "SELECT s.tableoid::bigint, s.xmin::text, s.ctid::text "
        f"FROM {table.states.sql} s WHERE s.mst_key = %s AND s.chunk = 0",
        (key,),
    )
    return (*rows, key)

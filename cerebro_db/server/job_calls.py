"""Calls of jobs and schedules: arguments, checks before anything is done, and how a call is made.

Which functions may be called is declared beside each of them, in ``entry_of``; what arguments they have is declared in SQL.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.messages import shown
from cerebro_db.configs.registry import is_registered
from cerebro_db.errors import (
    CerebroError,
    DuplicateTable,
    InvalidArgument,
    NotPermitted,
    ObjectInUse,
    UndefinedTable,
)
from cerebro_db.models.one_model import OneModel
from cerebro_db.packing import pack as packing
from cerebro_db.packing.columns import id_columns, names_in
from cerebro_db.packing.encoding_plan import EncodingRequest
from cerebro_db.packing.request import ImageRequest, PackRequest
from cerebro_db.postgres.control import JobHost, control_session
from cerebro_db.postgres.outputs import new_outputs
from cerebro_db.postgres.relations import CallerPath, SearchPath, column, find, new_name
from cerebro_db.postgres.session_settings import SEARCH_PATH
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import PACKED, PREDICTIONS
from cerebro_db.relay.machine import cores
from cerebro_db.runs import driver, setup
from cerebro_db.runs.driver import Queued
from cerebro_db.runs.request import FitRequest, Limits
from cerebro_db.runs.searches import search
from cerebro_db.runs.searches.arguments import SearchArguments
from cerebro_db.scoring import prediction
from cerebro_db.scoring.prediction import PredictionRequest
from cerebro_db.server.declarations import ATTENDED, READS, Declaration, Scheduled, Unscheduled
from cerebro_db.server.entry import declaration_of
from cerebro_db.server.signatures import Argument, Signature, signatures

Given = Mapping[str, Any]
# Tables that calls before will have made, with the function and the arguments of each.
Made = Mapping[str, tuple[str, Given]]
# About how a call is made, which a job decides.
_OF_CALLS = frozenset({"wait", "priority"})
RUN, FOLLOWED = "run_id", "encoding_of"


@dataclass(frozen=True)
class Steps:
    """Steps of a function that is checked as its own call checks it.

    Attributes:
        check: refuses arguments that could not be followed now.
        foresee: the same where some tables, which it is told, are to be made before: what can be checked without them.
        queue: registers the run that it makes, for ``driver.drive_on``; None where it makes none.
        work: does what makes no run, in sessions of its own; None where it is called in a session.
    """

    check: Callable[[JobHost, Given], None]
    foresee: Callable[[JobHost, Given, Made], None]
    queue: Callable[[JobHost, Given, Queued], int] | None = None
    work: Callable[[JobHost, Given], object] | None = None


@dataclass(frozen=True)
class Function:
    """A function that jobs may call, with those of its signatures that change data."""

    name: str
    overloads: tuple[tuple[Signature, Scheduled], ...]

    @property
    def how(self) -> Scheduled:
        """Its declaration."""
        return self.overloads[0][1]

    @property
    def steps(self) -> Steps | None:
        """Its steps, where it has some of its own."""
        return STEPS[self.how.steps] if self.how.steps else None

    @property
    def makes_run(self) -> bool:
        """True if the driver of a job drives its run."""
        return self.steps is not None and self.steps.queue is not None

    @functools.cached_property
    def arguments(self) -> dict[str, Argument]:
        """Its arguments by name; one that has a default somewhere need not be given."""
        found: dict[str, Argument] = {}
        for signature, _ in self.overloads:
            for name, one in signature.arguments.items():
                if name not in _OF_CALLS and (name not in found or found[name].default is None):
                    found[name] = one
        return found

    def checked(self, given: object, *, has_run: bool = False) -> dict[str, Any]:
        """Arguments by name, each of its type.

        Args:
            given: them, as JSON has them.
            has_run: whether a call before makes a run, which this one means where it names none.

        Raises:
            InvalidArgument: one is unknown, missing, or of another type.
        """
        if not isinstance(given, dict):
            raise InvalidArgument(
                f"{self.name}: got {_json(given)}; allowed: an object with its arguments by name"
            )
        for argument in given:
            if argument not in self.arguments:
                raise unknown(self.name, "argument", argument, list(self.arguments))
        for argument, one in self.arguments.items():
            if one.default is None and argument not in given and not (has_run and argument == RUN):
                raise InvalidArgument(f"{self.name}: {argument} is missing")
        self._fitting(given)
        return dict(given)

    def _fitting(self, given: Given) -> Signature:
        """The first signature of which the arguments are.

        Raises:
            InvalidArgument: there is none.
        """
        wrong = None
        for signature, _ in self.overloads:
            known = signature.arguments
            bad = [
                name
                for name in given
                if name not in known or not _fits(known[name].type, given[name])
            ]
            if not bad:
                return signature
            wrong = wrong or bad[0]
        assert wrong is not None
        types = [s.arguments[wrong].type for s, _ in self.overloads if wrong in s.arguments]
        allowed = ", ".join(dict.fromkeys(map(_told, types)))
        raise InvalidArgument(
            f"{self.name}: {wrong}: got {_json(given[wrong])}; allowed: {allowed}"
        )

    def statement(self, given: Given) -> tuple[str, list[Any]]:
        """The statement that calls the function, and its values."""
        signature = self._fitting(given)
        texts, values = [], []
        for name, one in signature.arguments.items():
            if name in given:
                texts.append(f"{name} := %s::{one.type}")
                values.append(_value(one.type, given[name]))
            elif one.default is None and (default := self.arguments[name].default) is not None:
                texts.append(f"{name} := {default}".replace("%", "%%"))
        return f"SELECT cerebro.{self.name}({', '.join(texts)})", values


def function_of(name: str) -> Function:
    """A function that jobs may call.

    Raises:
        InvalidArgument: there is none of this name, or it is not declared as one.
    """
    declared = [(one, _declaration(one)) for one in signatures().get(name, ())]
    overloads = tuple((one, how) for one, how in declared if isinstance(how, Scheduled))
    if overloads:
        return Function(name, overloads)
    whys = [how.why for _, how in declared if isinstance(how, Unscheduled)]
    if name.startswith("cerebro_") and whys:
        raise InvalidArgument(
            f"calls: got the function {name}, which {whys[0]}; allowed: a function that changes data"
        )
    raise unknown("calls", "function", name, schedulable())


def schedulable() -> list[str]:
    """The names of the functions that jobs may call."""
    return sorted(
        name
        for name, found in signatures().items()
        if name.startswith("cerebro_")
        and any(isinstance(_declaration(one), Scheduled) for one in found)
    )


def _declaration(signature: Signature) -> Declaration | None:
    """What the entry of a function is declared as; what has none is for the database itself."""
    if signature.is_immutable:
        return READS
    if signature.entry is None:
        return ATTENDED
    module, _, name = signature.entry.partition(".")
    found = importlib.import_module(f"cerebro_db.server.{module}")
    return declaration_of(getattr(found, name))


def _json(value: object) -> str:
    """A value as its writer has written it."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return shown(value)


_NUMBERS: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "bigint": int,
    "double precision": (int, float),
}
_KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "bigint": "a whole number",
    "double precision": "a number",
    "json": "JSON",
    "jsonb": "JSON",
}


def _fits(kind: str, value: object) -> bool:
    """True if a value out of JSON is of a type of SQL."""
    if value is None or kind in ("json", "jsonb"):
        return True
    if kind.endswith("[]"):
        return isinstance(value, list) and all(_fits(kind.removesuffix("[]"), one) for one in value)
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    return isinstance(value, _NUMBERS.get(kind, str))


def _told(kind: str) -> str:
    return "an array" if kind.endswith("[]") else _KINDS.get(kind, "a text")


def _value(kind: str, value: object) -> Any:
    """A value as a parameter of a statement."""
    if isinstance(value, dict) or (isinstance(value, list) and not kind.endswith("[]")):
        return json.dumps(value)
    is_json = kind in ("json", "jsonb") and value is not None and not isinstance(value, str)
    return json.dumps(value) if is_json else value


# -- runs ----------------------------------------------------------------------
def _fit_request(host: JobHost, given: Given) -> FitRequest:
    fields = {one.name for one in dataclasses.fields(OneModel)}
    common = {name: value for name, value in given.items() if name not in fields}
    one = {name: value for name, value in given.items() if name in fields}
    return FitRequest(
        **common,
        **({"model_selection_table": None} if one else {}),
        one=OneModel(**one) if one else None,
        search_path=host.search_path,
        cores=cores(),
    )


def _check_fit(host: JobHost, given: Given) -> None:
    request = _fit_request(host, given)
    driver.check(host.pool, host.dialect, request)
    with control_session(host.pool, host.search_path) as session:
        setup.check_output(session, request)


def _foresee_fit(host: JobHost, given: Given, made: Made) -> None:
    with control_session(host.pool, host.search_path) as session:
        setup.check_without_data(session, _fit_request(host, given))


def _queue_fit(host: JobHost, given: Given, queued: Queued) -> int:
    request = _fit_request(host, given)
    return driver.queue(host.pool, host.dialect, request, queued, host.notice)


def _search_arguments(host: JobHost, given: Given) -> SearchArguments:
    return SearchArguments(**given, search_path=host.search_path, cores=cores())


def _check_search(host: JobHost, given: Given) -> None:
    search.check(host.pool, host.dialect, _search_arguments(host, given).request())


def _foresee_search(host: JobHost, given: Given, made: Made) -> None:
    with control_session(host.pool, host.search_path) as session:
        search.check_without_data(session, _search_arguments(host, given).request())


def _queue_search(host: JobHost, given: Given, queued: Queued) -> int:
    request = _search_arguments(host, given).request()
    return search.queue(host.pool, host.dialect, request, queued, host.notice)


RESUME = "cerebro_resume"


def resume_limits(given: Given, search_path: CallerPath | None = None) -> Limits:
    """Limits of a driver that goes on with a run.

    Args:
        given: arguments of cerebro_resume.
        search_path: for the name of the output; it is used where the run is queued.
    """
    return Limits(
        given["max_seconds"],
        given["num_workers"],
        bool(given["any_version"]),
        given["model_output_table"] if search_path is not None else None,
        search_path,
    )


def limits_of(name: str, given: Given) -> Limits:
    """Limits of the driver of a run that a call has registered.

    Args:
        name: of the function.
        given: its arguments.
    """
    if name == RESUME:
        return resume_limits(given)
    if name == "cerebro_search":  # whose end is a decision of its own
        return Limits()
    return Limits(max_seconds=given.get("max_seconds"))


# -- calls without a run -------------------------------------------------------
def _check_predict(host: JobHost, given: Given) -> None:
    prediction.check(host, PredictionRequest(**given))


def _foresee_predict(host: JobHost, given: Given, made: Made) -> None:
    request = PredictionRequest(**given)
    _ = request.wanted, request.ignores
    with control_session(host.pool, host.search_path) as session:
        new_outputs(session, request.output_table, "output_table", PREDICTIONS, replace=True)
        if request.test_table in made:
            return
        table = find(session, request.test_table, "test_table")
        if request.id_col is not None:
            id_columns(table, request.id_col, ())
        role, listed = "independent_varname", request.independent_varname
        for name in () if listed in (None, "*") else names_in(table, listed, role):
            column(table, name, role)


def _predict(host: JobHost, given: Given) -> object:
    return prediction.predict(host, PredictionRequest(**given))


_OF_ENCODINGS = tuple(one.name for one in dataclasses.fields(EncodingRequest))
_OF_IMAGES = {"image_shape": None, "image_format": None}


def _pack_request(given: Given, *, kind: str) -> PackRequest:
    """The request of a packing.

    Args:
        given: its arguments.
        kind: the name of its steps.
    """
    more: dict[str, Any] = {"is_validation": kind == "pack_validation"}
    common = dict(given)
    if kind == "pack_columns":
        more["encoding"] = EncodingRequest(
            **{name: _value("text", common.pop(name)) for name in _OF_ENCODINGS if name in common}
        )
    if kind == "pack_images":
        shape, form = (common.pop(name, default) for name, default in _OF_IMAGES.items())
        more["image"] = ImageRequest(shape, form)
    return PackRequest(**{"distribution_rules": "all_segments", **common}, **more)


def _check_pack(host: JobHost, given: Given, *, kind: str) -> None:
    _pack_request(given, kind=kind).check()
    find_tables(host, function_of(f"cerebro_{kind}"), given)
    packing.check(host, _pack_request(given, kind=kind))


def _foresee_pack(host: JobHost, given: Given, made: Made, *, kind: str) -> None:
    request = _pack_request(given, kind=kind)
    request.check()
    if given["source_table"] not in made:
        packing.check(host, _apart(request, made))
        return
    with control_session(host.pool, host.search_path) as session:
        new_outputs(session, given["output_table"], "output_table", PACKED, replace=True)


_MAY_READ = "SELECT pg_catalog.has_any_column_privilege(%s::oid, 'SELECT')"


def find_tables(host: JobHost, function: Function, given: Given, made: Made | None = None) -> None:
    """Refuse names of tables that are not there, nor made by then.

    Raises:
        UndefinedTable: that is so.
        NotPermitted: the role may not read one of them.
    """
    with control_session(host.pool, host.search_path) as session:
        for argument in function.how.reads:
            name = given.get(argument)
            if name is not None and name not in (made or {}) and not is_registered(name):
                table = find(session, name, argument)
                # Of the table that is followed it is the summary that is read.
                if argument != FOLLOWED and not session.run(_MAY_READ, (table.oid,))[0][0]:
                    raise NotPermitted(f"{argument}: permission denied to read {table.name}")


def _apart(request: PackRequest, made: Made) -> PackRequest:
    """The request without the training table that is to be made before, and with what that will have decided."""
    name, given = made.get(str(request.training_table), ("cerebro_pack", {}))
    training = _pack_request({"source_table": None, "output_table": None, "dependent_varname": None,
                              "independent_varname": None, **given}, kind=name.removeprefix("cerebro_"))  # fmt: skip
    listed = request.independent_varname
    if listed is None and training.encoding is not None:
        listed = training.independent_varname
    return dataclasses.replace(
        request,
        independent_varname=listed,
        training_table=None,
        encoding_of=None if request.encoding_of in made else request.encoding_of,
        is_validation=False,
        encoding=request.encoding or training.encoding,
        image=request.image or training.image,
    )


def _pack(host: JobHost, given: Given, *, kind: str) -> object:
    return packing.pack(host, _pack_request(given, kind=kind))


def _pack_steps(kind: str) -> Steps:
    check = functools.partial(_check_pack, kind=kind)
    foresee = functools.partial(_foresee_pack, kind=kind)
    return Steps(check, foresee, work=functools.partial(_pack, kind=kind))


STEPS = {
    "fit": Steps(_check_fit, _foresee_fit, _queue_fit),
    "search": Steps(_check_search, _foresee_search, _queue_search),
    "predict": Steps(_check_predict, _foresee_predict, work=_predict),
    **{
        kind: _pack_steps(kind)
        for kind in ("pack", "pack_columns", "pack_images", "pack_validation")
    },
}


def _check_tables(host: JobHost, function: Function, given: Given, made: Made) -> None:
    """Refuse tables that are not there, and the name of an output that cannot be made."""
    find_tables(host, function, given, made)
    name = given.get(function.how.makes) if function.how.makes else None
    if name is None:
        return
    with control_session(host.pool, host.search_path) as session:
        output = new_name(session, name, str(function.how.makes))
        taken = session.run("SELECT pg_catalog.to_regclass(%s) IS NOT NULL", (output.text,))[0][0]
        is_certain = function.how.suffixes == ("",)
        if taken and is_certain and given.get("replace") is not True:
            raise DuplicateTable(f"{function.how.makes}: {output} exists already")


def _check_call(host: JobHost, function: Function, given: Given, made: Made) -> None:
    steps = function.steps
    if steps is None:
        _check_tables(host, function, given, made)
        return
    waits_for = set(made) & {given.get(one) for one in function.how.reads}
    try:
        followed = {given.get("training_table"), given.get(FOLLOWED)}
        if not followed & waits_for:  # else it will have other columns, perhaps
            steps.check(host, given)
            return
    except UndefinedTable:
        if not waits_for:
            raise
    find_tables(host, function, given, made)
    steps.foresee(host, given, made)


def check_calls(host: JobHost, calls: Sequence[tuple[str, Given]], *, repeated: bool) -> None:
    """Refuse calls that could not be made now, one after another.

    What one of them makes need not be there yet for those that follow.

    Args:
        host: of the caller.
        calls: names and arguments.
        repeated: whether they are made again and again.

    Raises:
        CerebroError: one could not, with its name before the message.
    """
    made: dict[str, tuple[str, Given]] = {}
    for name, given in calls:
        function = function_of(name)
        if repeated:
            _check_replaces(function, given)
        try:
            with suppress(
                ObjectInUse
            ):  # by a job of the schedule that this one replaces, for example
                _check_call(host, function, given, made)
        except CerebroError as error:
            error.message = f"{name}: {error.message}"
            raise
        if (makes := given.get(function.how.makes or "")) is not None:
            made |= {f"{makes}{suffix}": (name, given) for suffix in function.how.suffixes}


def _check_replaces(function: Function, given: Given) -> None:
    """Refuse an output of a schedule that is in its own way.

    Raises:
        InvalidArgument: that is so.
    """
    makes = function.how.makes
    is_made = makes is not None and (given.get(makes) is not None or makes not in given)
    if is_made and "replace" in function.arguments and given.get("replace") is not True:
        raise InvalidArgument(
            f"{function.name}: replace: got {_json(given.get('replace'))}; allowed in a schedule: true, as "
            "from the second time on there is a table of that name"
        )


def made_in(session: Session, host: JobHost, function: Function, given: Given) -> None:
    """Call a function in a session, which is in a transaction, as if its owner had called it.

    Args:
        session: of the owner.
        host: of the job: its search path and settings are those of the session that submitted it.
        function: which makes no run.
        given: its arguments.
    """
    settings = {**host.pool.caller, SEARCH_PATH: _path_text(host.search_path)}
    for name, value in settings.items():
        session.run("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
    session.run(*function.statement(given))


def _path_text(path: CallerPath) -> str:
    """The setting search_path in which names are found as on a path."""
    if not isinstance(path, SearchPath):
        return path
    schemas = [one for one in path.schemas if one != path.temporary]
    if schemas[:1] == ["pg_catalog"] and path.first != "pg_catalog":
        del schemas[
            0
        ]  # which the server adds by itself; as the first one new tables would be made there
    return ", ".join('"' + one.replace('"', '""') + '"' for one in schemas)

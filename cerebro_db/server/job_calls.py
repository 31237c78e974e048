"""Functions that a job may call: what their arguments are, how they are checked, begun and done."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.messages import shown
from cerebro_db.configs.registry import is_registered
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    NotPermitted,
    ObjectInUse,
    UndefinedTable,
)
from cerebro_db.models.one_model import OneModel
from cerebro_db.packing import pack as packing
from cerebro_db.packing.columns import id_columns, names_in
from cerebro_db.packing.request import PackRequest
from cerebro_db.postgres.control import JobHost, control_session
from cerebro_db.postgres.outputs import new_outputs
from cerebro_db.postgres.relations import CallerPath, column, find
from cerebro_db.postgres.table_kinds import PACKED, PREDICTIONS
from cerebro_db.relay.machine import cores
from cerebro_db.runs import driver, setup
from cerebro_db.runs.driver import Queued
from cerebro_db.runs.request import FitRequest, Limits
from cerebro_db.runs.searches import search
from cerebro_db.runs.searches.arguments import SearchArguments
from cerebro_db.scoring import prediction
from cerebro_db.scoring.prediction import PredictionRequest

Given = Mapping[str, Any]
# Fields of requests that no caller gives.
_HIDDEN = frozenset({"search_path", "cores", "one", "encoding", "image", "is_validation"})


@dataclass(frozen=True)
class Function:
    """A function that a job may call.

    Attributes:
        requests: classes whose fields are its arguments.
        makes: the argument that names the table that it makes.
        reads: arguments that name tables that it reads.
        check: refuses arguments that could not be followed now.
        foresee: the same where some tables, which it is told, are to be made before: what can be checked without them.
        queue: registers the run that it makes, for ``driver.drive_on``; None where it makes none.
        work: does what makes no run.
        without: arguments of these classes that it has not.
    """

    requests: tuple[type, ...]
    makes: str
    reads: tuple[str, ...]
    check: Callable[[JobHost, Given], None]
    foresee: Callable[[JobHost, Given, Collection[str]], None]
    queue: Callable[[JobHost, Given, Queued], int] | None = None
    work: Callable[[JobHost, Given], object] | None = None
    without: frozenset[str] = frozenset()

    @property
    def arguments(self) -> dict[str, dataclasses.Field[Any]]:
        """Its arguments by name."""
        return {
            one.name: one
            for request in self.requests
            for one in dataclasses.fields(request)
            if one.name not in _HIDDEN | self.without
        }

    def checked(self, name: str, given: object) -> dict[str, Any]:
        """Arguments by name, each of its type.

        Raises:
            InvalidArgument: one is unknown, missing, or of another type.
        """
        if not isinstance(given, dict):
            raise InvalidArgument(
                f"{name}: got {_json(given)}; allowed: an object with its arguments by name"
            )
        known = self.arguments
        hints = _hints(self.requests)
        for argument, value in given.items():
            if argument not in known:
                raise unknown(name, "argument", argument, list(known))
            if not _fits(hints[argument], value):
                raise InvalidArgument(
                    f"{name}: {argument}: got {_json(value)}; allowed: {_told(hints[argument])}"
                )
        for argument, one in known.items():
            is_needed = one.default is dataclasses.MISSING
            is_needed = is_needed and one.default_factory is dataclasses.MISSING
            if is_needed and argument not in given:
                raise InvalidArgument(f"{name}: {argument} is missing")
        return dict(given)


def _json(value: object) -> str:
    """A value as its writer has written it."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return shown(value)


@functools.cache
def _hints(requests: tuple[type, ...]) -> dict[str, Any]:
    return {name: hint for one in requests for name, hint in typing.get_type_hints(one).items()}


_JSON = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


def _kinds(hint: Any) -> tuple[Any, ...]:
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if is_union else (hint,)


def _fits(hint: Any, value: object) -> bool:
    """True if a value out of JSON is of a type."""
    return any(_is_of(kind, value) for kind in _kinds(hint))


def _is_of(kind: Any, value: object) -> bool:
    if typing.get_origin(kind) is not None:  # a sequence
        (element,) = typing.get_args(kind)
        return isinstance(value, list) and all(_fits(element, one) for one in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _told(hint: Any) -> str:
    told = [_JSON.get(kind, "an array") for kind in _kinds(hint) if kind is not type(None)]
    return ", ".join([*told, "null"]) if type(None) in _kinds(hint) else ", ".join(told)


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


def _foresee_fit(host: JobHost, given: Given, made: Collection[str]) -> None:
    with control_session(host.pool, host.search_path) as session:
        setup.check_without_data(session, _fit_request(host, given))


def _queue_fit(host: JobHost, given: Given, queued: Queued) -> int:
    request = _fit_request(host, given)
    return driver.queue(host.pool, host.dialect, request, queued, host.notice)


def _search_arguments(host: JobHost, given: Given) -> SearchArguments:
    return SearchArguments(**given, search_path=host.search_path, cores=cores())


def _check_search(host: JobHost, given: Given) -> None:
    search.check(host.pool, host.dialect, _search_arguments(host, given).request())


def _foresee_search(host: JobHost, given: Given, made: Collection[str]) -> None:
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


def _foresee_predict(host: JobHost, given: Given, made: Collection[str]) -> None:
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


def _pack_request(given: Given, *, is_validation: bool) -> PackRequest:
    return PackRequest(
        **{"distribution_rules": "all_segments", **given}, is_validation=is_validation
    )


def _check_pack(host: JobHost, given: Given, *, is_validation: bool) -> None:
    _pack_request(given, is_validation=is_validation).check()
    find_tables(host, FUNCTIONS[_PACKS[is_validation]], given)
    packing.check(host, _pack_request(given, is_validation=is_validation))


def _foresee_pack(
    host: JobHost, given: Given, made: Collection[str], *, is_validation: bool
) -> None:
    _pack_request(given, is_validation=is_validation).check()
    if given["source_table"] not in made:
        apart = {name: value for name, value in given.items() if name != "training_table"}
        packing.check(host, _pack_request(apart, is_validation=False))
        return
    with control_session(host.pool, host.search_path) as session:
        new_outputs(session, given["output_table"], "output_table", PACKED, replace=True)


_MAY_READ = "SELECT pg_catalog.has_any_column_privilege(%s::oid, 'SELECT')"
_PACKS = ("cerebro_pack", "cerebro_pack_validation")


def find_tables(
    host: JobHost, function: Function, given: Given, made: Collection[str] = ()
) -> None:
    """Refuse names of tables that are not there, nor made by then.

    Raises:
        UndefinedTable: that is so.
        NotPermitted: the role may not read one of them.
    """
    with control_session(host.pool, host.search_path) as session:
        for argument in function.reads:
            name = given.get(argument)
            if name is not None and name not in made and not is_registered(name):
                table = find(session, name, argument)
                if not session.run(_MAY_READ, (table.oid,))[0][0]:
                    raise NotPermitted(f"{argument}: permission denied to read {table.name}")


def _pack(host: JobHost, given: Given, *, is_validation: bool) -> object:
    return packing.pack(host, _pack_request(given, is_validation=is_validation))


_FIT_READS = ("source_table", "validation_table", "model_selection_table", "model_arch_table")
_SEARCH_READS = ("source_table", "validation_table", "model_arch_table")
_OF_IMAGES = frozenset({"on_error"})
FUNCTIONS = {
    "cerebro_pack": Function(
        (PackRequest,),
        "output_table",
        ("source_table", "encoding_of"),
        functools.partial(_check_pack, is_validation=False),
        functools.partial(_foresee_pack, is_validation=False),
        work=functools.partial(_pack, is_validation=False),
        without=_OF_IMAGES | {"training_table"},
    ),
    "cerebro_pack_validation": Function(
        (PackRequest,),
        "output_table",
        ("source_table", "training_table"),
        functools.partial(_check_pack, is_validation=True),
        functools.partial(_foresee_pack, is_validation=True),
        work=functools.partial(_pack, is_validation=True),
        without=_OF_IMAGES
        | {
            "normalizing_const",
            "num_classes",
            "num_partitions",
            "seed",
            "sample_weight",
            "encoding_of",
        },
    ),
    "cerebro_fit_multiple": Function(
        (FitRequest,), "model_output_table", _FIT_READS, _check_fit, _foresee_fit, _queue_fit
    ),
    "cerebro_fit": Function(
        (FitRequest, OneModel),
        "model_output_table",
        _FIT_READS,
        _check_fit,
        _foresee_fit,
        _queue_fit,
        without=frozenset({"model_selection_table", "num_workers", "schedule"}),
    ),
    "cerebro_search": Function(
        (SearchArguments,),
        "model_output_table",
        _SEARCH_READS,
        _check_search,
        _foresee_search,
        _queue_search,
    ),
    "cerebro_predict": Function(
        (PredictionRequest,),
        "output_table",
        ("model_table", "test_table"),
        _check_predict,
        _foresee_predict,
        work=_predict,
    ),
}


def _check_call(host: JobHost, function: Function, given: Given, made: Collection[str]) -> None:
    waits_for = set(made) & {given.get(one) for one in function.reads}
    try:
        if given.get("training_table") not in waits_for:  # else it will have other columns, perhaps
            function.check(host, given)
            return
    except UndefinedTable:
        if not waits_for:
            raise
    find_tables(host, function, given, made)
    function.foresee(host, given, made)


def check_calls(host: JobHost, calls: Sequence[tuple[str, Given]]) -> None:
    """Refuse calls that could not be made now, one after another, again and again.

    What one of them makes need not be there yet for those that follow.

    Raises:
        CerebroError: one could not, with its name before the message.
    """
    made: set[str] = set()
    for name, given in calls:
        function = FUNCTIONS[name]
        if given.get("replace") is not True:
            raise InvalidArgument(
                f"{name}: replace: got {_json(given.get('replace'))}; allowed in a schedule: true, as "
                "from the second time on there is a table of that name"
            )
        try:
            with suppress(
                ObjectInUse
            ):  # by a job of the schedule that this one replaces, for example
                _check_call(host, function, given, made)
        except CerebroError as error:
            error.message = f"{name}: {error.message}"
            raise
        made.add(str(given.get(function.makes)))

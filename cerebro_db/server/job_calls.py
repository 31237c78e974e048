"""Calls of jobs and schedules: arguments, checks before anything is done, and how a call is made.

Which functions may be called, and with what arguments, is declared in ``requests/``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import structs

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.names import is_registered
from cerebro_db.errors import (
    CerebroError,
    DuplicateTable,
    InvalidArgument,
    NotPermitted,
    ObjectInUse,
    UndefinedTable,
)
from cerebro_db.packing import pack as packing
from cerebro_db.packing.features import id_columns, names_in
from cerebro_db.packing.resolve import check_alone
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.tables.kinds import PACKED, PREDICTIONS
from cerebro_db.postgres.tables.outputs import new_outputs
from cerebro_db.postgres.tables.relations import column, find, new_name
from cerebro_db.relay.machine import cores
from cerebro_db.requests.declared import FUNCTIONS, Function, Job, Unscheduled
from cerebro_db.requests.fitting import ResumeRequest, RunRequest
from cerebro_db.requests.packing import PackingRequest, PackRequest, PackValidationRequest
from cerebro_db.requests.predicting import PredictionRequest
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.runs import driver, setup
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import Queued
from cerebro_db.runs.searches import search
from cerebro_db.runs.setup import TrainRequest
from cerebro_db.scoring import prediction
from cerebro_db.scoring.prediction import wanted_of

Given = Mapping[str, Any]
# Tables that calls before will have made, with the function and the arguments of each.
Made = Mapping[str, tuple[str, Given]]
FOLLOWED = "encoding_of"


class Steps(NamedTuple):
    """Steps of a function whose call by a job is checked as its own call checks it.

    Attributes:
        check: refuses a request that could not be followed now.
        check_early: refuses what is wrong whatever the tables are that calls before it are to make.
        queue: registers the run that it makes, for ``driver.drive_on``; None where it makes none.
        work: does what makes no run, in sessions of its own; None where it is called in a session.
    """

    check: Callable[[JobHost, Any], object]
    check_early: Callable[[JobHost, Any, Made], object]
    queue: Callable[[JobHost, Any, Queued], int] | None = None
    work: Callable[[JobHost, Any], object] | None = None


def function_of(name: str) -> Function:
    """A function that jobs may call.

    Raises:
        InvalidArgument: there is none of this name, or it is not declared as one.
    """
    for one in FUNCTIONS.get(name, ()):
        if isinstance(one.job, Job):
            return one
    for one in FUNCTIONS.get(name, ()):
        assert isinstance(one.job, Unscheduled)
        raise InvalidArgument(
            f"calls: got the function {name}, which {one.job.why}; allowed: a function that changes data"
        )
    raise unknown("calls", "function", name, schedulable())


def schedulable() -> list[str]:
    """The names of the functions that jobs may call."""
    return sorted(
        name for name, found in FUNCTIONS.items() if any(isinstance(one.job, Job) for one in found)
    )


def job_of(function: Function) -> Job:
    """The declaration of a function that jobs may call."""
    assert isinstance(function.job, Job)
    return function.job


def steps_of(function: Function) -> Steps | None:
    """Steps of a function that has some of its own."""
    name = job_of(function).steps
    return STEPS[name] if name else None


def makes_run(function: Function) -> bool:
    """True if the driver of a job drives the run of the function."""
    steps = steps_of(function)
    return steps is not None and steps.queue is not None


def request_of(host: JobHost, function: Function, given: Given) -> Any:
    """The request of a call, which is made as the host makes it.

    Args:
        host: whose search path and processors count, where the call makes a run.
        function: which is called.
        given: its arguments, perhaps out of JSON.
    """
    values = function.bound(given)
    if issubclass(function.request, RunRequest):
        values |= {"search_path": host.search_path, "cores": cores()}
    return function.request(**values)


# -- runs ----------------------------------------------------------------------
def _check_fit(host: JobHost, request: TrainRequest) -> None:
    driver.check(host.pool, host.dialect, request)
    with control_session(host.pool, host.search_path) as session:
        setup.check_output(session, request)


def _check_fit_early(host: JobHost, request: TrainRequest, made: Made) -> None:
    with control_session(host.pool, host.search_path) as session:
        setup.check_without_data(session, request)


def _queue_fit(host: JobHost, request: TrainRequest, queued: Queued) -> int:
    return driver.queue(host.pool, host.dialect, request, queued, host.notice)


def _check_search(host: JobHost, request: SearchRequest) -> None:
    search.check(host.pool, host.dialect, request)


def _check_search_early(host: JobHost, request: SearchRequest, made: Made) -> None:
    with control_session(host.pool, host.search_path) as session:
        search.check_without_data(session, request)


def _queue_search(host: JobHost, request: SearchRequest, queued: Queued) -> int:
    return search.queue(host.pool, host.dialect, request, queued, host.notice)


RESUME = "cerebro_resume"


def limits_of(name: str, given: Given) -> Limits:
    """Limits of the driver of a run that a call has registered.

    Args:
        name: of the function.
        given: its arguments.
    """
    if name == RESUME:
        return Limits.of(ResumeRequest(**given))
    if name == "cerebro_search":  # whose end is a decision of its own
        return Limits()
    return Limits(max_seconds=given.get("max_seconds"))


# -- calls without a run -------------------------------------------------------
def _check_predict_early(host: JobHost, request: PredictionRequest, made: Made) -> None:
    wanted_of(request.pred_type)
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


def _check_pack(host: JobHost, request: PackingRequest) -> None:
    check_alone(request)
    find_tables(host, request.function, request.given())
    packing.check(host, request)


def _check_pack_early(host: JobHost, request: PackingRequest, made: Made) -> None:
    check_alone(request)
    if request.source_table not in made:
        packing.check(host, _apart(request, made))
        return
    with control_session(host.pool, host.search_path) as session:
        new_outputs(session, request.output_table, "output_table", PACKED, replace=True)


_MAY_READ = "SELECT pg_catalog.has_any_column_privilege(%s::oid, 'SELECT')"


def find_tables(host: JobHost, function: Function, given: Given, made: Made | None = None) -> None:
    """Refuse names of tables that are not there, nor made by then.

    Raises:
        UndefinedTable: that is so.
        NotPermitted: the role may not read one of them.
    """
    with control_session(host.pool, host.search_path) as session:
        for argument in job_of(function).reads:
            name = given.get(argument)
            if name is not None and name not in (made or {}) and not is_registered(name):
                table = find(session, name, argument)
                # Of the table that is followed it is the summary that is read.
                if argument != FOLLOWED and not session.run(_MAY_READ, (table.oid,))[0][0]:
                    raise NotPermitted(f"{argument}: permission denied to read {table.name}")


def _apart(request: PackingRequest, made: Made) -> PackingRequest:
    """The request without the tables that are to be made before, and with what those will have decided."""
    if isinstance(request, PackValidationRequest):
        before = made.get(str(request.training_table))
        return request if before is None else _like_training(request, *before)
    return structs.replace(request, encoding_of=None) if request.encoding_of in made else request


def _like_training(request: PackValidationRequest, name: str, given: Given) -> PackingRequest:
    """A request to pack the rows of a validation table as a training table will be packed."""
    function = function_of(name)
    names = dict.fromkeys(one.name for one in function.arguments.values() if not one.default)
    training = function.request(**(names | function.bound(given)))
    assert isinstance(training, PackingRequest)
    listed = request.independent_varname
    if listed is None and not isinstance(training, PackRequest):
        listed = training.independent_varname
    return structs.replace(
        training,
        source_table=request.source_table,
        output_table=request.output_table,
        dependent_varname=request.dependent_varname,
        independent_varname=listed,
        distribution_rules=request.distribution_rules,
        replace=request.replace,
        encoding_of=None,
        num_classes=None,
        num_partitions=None,
        sample_weight=None,
    )


STEPS = {
    "fit": Steps(_check_fit, _check_fit_early, _queue_fit),
    "search": Steps(_check_search, _check_search_early, _queue_search),
    "predict": Steps(prediction.check, _check_predict_early, work=prediction.predict),
    "pack": Steps(_check_pack, _check_pack_early, work=packing.pack),
}


def _check_tables(host: JobHost, function: Function, given: Given, made: Made) -> None:
    """Refuse tables that are not there, and the name of an output that cannot be made."""
    find_tables(host, function, given, made)
    job = job_of(function)
    name = given.get(job.makes or "")
    if name is None:
        return
    with control_session(host.pool, host.search_path) as session:
        output = new_name(session, name, str(job.makes))
        taken = session.run("SELECT pg_catalog.to_regclass(%s) IS NOT NULL", (output.text,))[0][0]
        is_certain = job.suffixes == ("",)
        if taken and is_certain and given.get("replace") is not True:
            raise DuplicateTable(f"{job.makes}: {output} exists already")


def _check_call(host: JobHost, function: Function, given: Given, made: Made) -> None:
    steps = steps_of(function)
    if steps is None:
        _check_tables(host, function, given, made)
        return
    request = request_of(host, function, given)
    waits_for = set(made) & {given.get(one) for one in job_of(function).reads}
    try:
        followed = {given.get("training_table"), given.get(FOLLOWED)}
        if not followed & waits_for:  # else it will have other columns, perhaps
            steps.check(host, request)
            return
    except UndefinedTable:
        if not waits_for:
            raise
    find_tables(host, function, given, made)
    steps.check_early(host, request, made)


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
        if (makes := given.get(job_of(function).makes or "")) is not None:
            made |= {f"{makes}{suffix}": (name, given) for suffix in job_of(function).suffixes}


def _check_replaces(function: Function, given: Given) -> None:
    """Refuse an output of a schedule that is in its own way.

    Raises:
        InvalidArgument: that is so.
    """
    makes = job_of(function).makes
    is_made = makes is not None and (given.get(makes) is not None or makes not in given)
    if is_made and "replace" in function.arguments and given.get("replace") is not True:
        raise InvalidArgument(
            f"{function.name}: replace: got {json.dumps(given.get('replace'))}; allowed in a schedule: true, as "
            "from the second time on there is a table of that name"
        )

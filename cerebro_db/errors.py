"""The tree of errors: each carries a SQLSTATE, a message that says what was got, and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

# Classes of SQLSTATE that concern the server, not one configuration.
_FATAL_CLASSES = ("08", "40", "42", "53", "55", "57", "58")
# A hop that is there already, a damaged page of the disk, or a network that lets nobody through, is no
# fault of the configuration.
_FATAL_CODES = ("23505", "XX001", "XX002", "YC006")


def is_infrastructure_failure(sqlstate: str) -> bool:
    """True if a hop failed because of the server, its machine or the network, not because of its configuration."""
    return sqlstate in _FATAL_CODES or sqlstate[:2] in _FATAL_CLASSES


class CerebroError(Exception):
    """Root of all errors that Cerebro-DB raises on purpose.

    Args:
        message: what was got and what is allowed.
        hint: what to do about it; shown as HINT by the server.

    Attributes:
        advice: the hint where none is given.
        detail: what else there is to know; shown as DETAIL by the server.
    """

    sqlstate = "XX000"
    detail: str | None = None
    advice: ClassVar[str | None] = None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.advice

    @property
    def last_resort(self) -> str | None:
        """The hint for who has called a function, in the place of how it is called."""
        return None


# What the server shows before a message that has no colon, which it cannot show alone.
UNNAMED = "cerebro"

# Where a table has no rows.
NO_ROWS = "fill it first; of a view, look at its conditions"
# Where a packed table is not as packing has left it.
PACK_AGAIN = "the packed table was changed; pack its source again"


@contextmanager
def hinted(hint: str) -> Iterator[None]:
    """Give a hint to the errors that come from here without one; decorates functions, too."""
    try:
        yield
    except CerebroError as error:
        error.hint = error.hint or hint
        raise


class InvalidArgument(CerebroError):
    """A value is outside what is allowed."""

    sqlstate = "22023"


class UndefinedTable(CerebroError):
    """A table does not exist, or other sessions cannot see it."""

    sqlstate = "42P01"
    advice = "the schemas of the search_path are searched; schema.table names one of another schema"


class UndefinedColumn(CerebroError):
    """A table lacks a column."""

    sqlstate = "42703"
    advice = "name one of its columns, or a view that has such a column"


class DuplicateTable(CerebroError):
    """An output table exists already."""

    sqlstate = "42P07"
    advice = "drop it first, or choose another name"


class DependentObjects(CerebroError):
    """Something depends on a table that is to be replaced."""

    sqlstate = "2BP01"
    advice = "drop that first, or choose another name"


class DuplicateFunction(CerebroError):
    """A function to be made exists already."""

    sqlstate = "42723"
    advice = (
        "replace := true replaces what cerebro.cerebro_create_encoder made; or choose another name"
    )


class ObjectInUse(CerebroError):
    """A table is what another run, or another transaction, works on."""

    sqlstate = "55006"
    advice = "try again when that has ended; cerebro.progress shows the runs under way"


class UndefinedRun(CerebroError):
    """A run does not exist, or is not the caller's."""

    sqlstate = "42704"
    advice = "cerebro.runs shows your runs"


class UndefinedJob(CerebroError):
    """A job or a schedule does not exist, or is not the caller's."""

    sqlstate = "42704"
    advice = "cerebro.jobs and cerebro.schedules show yours"


class UndefinedModel(CerebroError):
    """A registered model, its version or its alias does not exist, or the caller may not use it."""

    sqlstate = "42704"
    advice = "cerebro.registered_models shows your models and those that you may use"


class WrongRunStatus(CerebroError):
    """A run is at a point where that cannot be done, for example finished."""

    sqlstate = "55000"
    advice = "cerebro.runs shows the status of your runs"


class RunCancelled(CerebroError):
    """A user or an administrator cancelled the run."""

    sqlstate = "57014"
    advice = "cerebro.cerebro_resume goes on with it"


class WrongObjectType(CerebroError):
    """A table is not of the kind that is needed, for example not packed."""

    sqlstate = "42809"


class InvalidData(CerebroError):
    """The rows of a table cannot be used: NULL, ragged, or an unseen class."""

    sqlstate = "22000"
    advice = "mend such rows, or leave them out in a view"


class InvalidArchitecture(CerebroError):
    """A model's JSON is refused, or cannot be built."""

    sqlstate = "22023"
    advice = "give what to_json() of a Keras model returns; docs/sql/models.md lists what is allowed under Layers"


class InvalidState(CerebroError):
    """The bytes of a state are damaged or of another model."""

    sqlstate = "22P03"
    advice = "what was stored was changed, or is of another model; train the model again"


class IncompleteRead(CerebroError):
    """Fewer or more rows were read than the source has."""

    sqlstate = "YC008"
    advice = (
        "copy the rows into a plain table (CREATE TABLE mine AS SELECT ...) and name that; please report which "
        "kind of table it is"
    )


class ConfigurationFailed(CerebroError):
    """A configuration cannot go on, for example because its loss is NaN."""

    sqlstate = "22000"
    advice = "change the model, its parameters or the data"


class OutOfMemory(CerebroError):
    """A computation needs more memory than its process may use."""

    sqlstate = "54000"  # a limit, not a lack that concerns a whole run
    advice = (
        "use a smaller batch_size or model; an administrator can allow more: "
        "SELECT cerebro.cerebro_set('max_worker_mb', '...')"
    )


class TrainerLost(CerebroError):
    """The process that computes for a session has ended by itself, or the kernel has ended it."""

    sqlstate = "YC001"  # of a class that the standard leaves to implementations
    advice = (
        "a run goes on by itself; where memory was short, use a smaller batch_size or model, or have an "
        "administrator raise the setting max_worker_mb"
    )


class TrainerBound(CerebroError):
    """A trainer has given itself a limit that is now wider, or has more than is allowed now, and has to be replaced.

    Args:
        setting: which of its limits.
        has_more: whether it has more than that already.
    """

    sqlstate = "YC003"
    advice = "call the function again"

    def __init__(self, setting: str, has_more: bool = False) -> None:
        super().__init__(
            f"the trainer has more than the {setting} that is set now"
            if has_more
            else f"the trainer began with a narrower {setting} than is set now"
        )


class PeerLost(CerebroError):
    """A participant of a process group has ended or was stopped; the others end their task."""

    sqlstate = "YC004"
    advice = "a run goes on by itself, from the last state that was stored"


class PeersApart(CerebroError):
    """Trainers that compute together have no way to each other."""

    sqlstate = "YC006"
    advice = (
        "the settings peer_network and peer_ports tell where trainers of several hosts meet, and a firewall has to "
        "let TCP through there; superusers may change them: SELECT cerebro.cerebro_set('peer_network', '...')"
    )


class HandedBack(CerebroError):
    """A worker that has joined a run has left a hop to others, for a reason of its own."""

    sqlstate = "YC005"
    advice = "the run goes on by itself: a worker beside the server makes the hop"


class RunFailed(CerebroError):
    """A run cannot go on."""

    sqlstate = "58000"
    advice = "cerebro.runs shows the run; SELECT cerebro.cerebro_resume(run_id) goes on with it"


class RunInterrupted(CerebroError):
    """A run lost its sessions too often; it can be resumed."""

    sqlstate = "58000"
    advice = "SELECT cerebro.cerebro_resume(run_id) goes on from the last hops; cerebro.runs shows the run_id"


class NotPermitted(CerebroError):
    """The calling role lacks a privilege."""

    sqlstate = "42501"
    advice = "the owner, or an administrator, can GRANT what is lacking"


class OpenTransaction(CerebroError):
    """The caller's transaction has done what sessions of a function cannot see, or wait for."""

    sqlstate = "25001"
    advice = (
        "COMMIT first; statements of one string, of a function or of a DO block are one transaction"
    )


class ReadOnlyTransaction(CerebroError):
    """The caller's transaction may not write."""

    sqlstate = "25006"
    advice = (
        "BEGIN READ WRITE begins one that may; SET default_transaction_read_only = off lets all, "
        "unless this server is a standby: call it on the primary"
    )


class SerializationFailed(CerebroError):
    """Another session changed something that a call needs after the caller's transaction began."""

    sqlstate = "40001"
    advice = (
        "ROLLBACK and try again; in a transaction that is READ COMMITTED the call would have waited"
    )


class MissingLibrary(CerebroError):
    """The virtual environment lacks an optional package."""

    sqlstate = "0A000"
    advice = "an administrator can install it into the virtual environment"


class LoopbackFailed(CerebroError):
    """The server cannot be reached from itself for worker sessions."""

    sqlstate = "08001"


class TooManyConnections(LoopbackFailed):
    """The server has no free connection for a session."""

    sqlstate = "53300"
    advice = (
        "end sessions that nobody uses (pg_stat_activity), or have an administrator raise the limit"
    )


class NotSupported(CerebroError):
    """The server lacks a feature that the call needs."""

    sqlstate = "0A000"


class Unexpected(CerebroError):
    """A defect, or an error of a library without a class of its own."""

    sqlstate = "38000"


class MissingPrerequisite(CerebroError):
    """Something that an installation needs is missing on the server."""

    sqlstate = "0A000"


class MissingPackage(CerebroError):
    """A function needs a Python package that the server does not have."""

    sqlstate = "0A000"
    advice = "an administrator can install it into the virtual environment"


class InstallationFailed(CerebroError):
    """An installation cannot go on, and has changed nothing."""

    sqlstate = "58000"


class ClusterFailed(CerebroError):
    """The embedded PostgreSQL cannot be run."""

    sqlstate = "58000"


def advice_of_server(sqlstate: str) -> str | None:
    """Hint for an error of the server itself; None for one that a wrong argument causes."""
    if sqlstate == InvalidArgument.sqlstate:
        return None
    return _OF_SERVER.get(sqlstate, "the log of the server has the statement that failed")


_OF_SERVER = {
    NotPermitted.sqlstate: NotPermitted.advice,
    "55P03": "another session holds the lock: pg_locks shows which one has it; on Greenplum an open "
    "transaction has tables of the catalog locked that has dropped a run or changed a model",
    RunCancelled.sqlstate: "it was cancelled, or statement_timeout is too short for it",
}

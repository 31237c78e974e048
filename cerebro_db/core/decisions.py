"""Decisions change the configurations of a run while it goes on; requests of other sessions ask for some of them.

A decision is one struct wherever it is: the decider makes it, the catalog stores it before it takes effect (a row for
each change), ``RunState.apply`` applies it, and whoever resumes or replays the run applies the stored ones again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta, field, structs

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument
from cerebro_db.wire import Wire, convert, decode, plain

ADD, CLONE, STOP, PROMOTE = "add", "clone", "stop", "promote"
FINISH, NARROW, EXTEND = "finish", "narrow", "extend"

FAILED = -1
"""In place of the epoch of a result: the configuration has ended without one."""

NOBODY = 0
"""In place of a mst_key: a decision about the search as a whole."""

Results = tuple[tuple[int, int], ...]
"""Results, as mst_key and epoch, that were taken note of since the decision before."""


class Change(Wire, frozen=True, array_like=True):
    """A configuration as a decision adds or changes it.

    Attributes:
        epochs: the budget; of stop, the epoch whose state is the model, and 0 for none: it is cancelled.
        row: of add and clone, the configuration as in a table of configurations.
        source, source_epoch: of clone, whose state after which epoch is the start. Its own epochs begin at 1;
            what of the state does not fit its parameters begins anew, as with ``warm_start``.
        detail: what a search knows of it: parameters, bracket, rung.
        reason: why; that of the decision where there is none.
    """

    mst_key: int
    epochs: int
    row: ConfigurationText | None = None
    source: int | None = None
    source_epoch: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def text(self) -> ConfigurationText:
        """The row of a configuration that joins the run."""
        assert self.row is not None
        return self.row

    @property
    def origin(self) -> tuple[int, int]:
        """The configuration and the epoch whose state a clone begins with."""
        assert self.source is not None
        assert self.source_epoch is not None
        return self.source, self.source_epoch


class Decision(Wire, frozen=True):
    """A decision about configurations, or about a search as a whole.

    Attributes:
        action: ``add``, ``clone``, ``stop``, ``promote``; ``finish``, ``narrow`` or ``extend`` a search.
        changes: by mst_key; none of a decision about the search as a whole.
        who: the role that asked for it; empty where the run has decided by itself.
        results: on which it is based, beside those of earlier decisions.
        detail: of a decision about the search, the request that it follows.
    """

    action: str
    changes: tuple[Change, ...] = ()
    reason: str = ""
    who: str = ""
    results: Results = ()
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def only(self) -> Change:
        """The change of a decision that has one."""
        (found,) = self.changes
        return found

    @property
    def origins(self) -> list[tuple[int, int]]:
        """Configurations and epochs whose states it needs."""
        if self.action == STOP:
            return [(one.mst_key, one.epochs) for one in self.changes]
        return [one.origin for one in self.changes] if self.action == CLONE else []

    @property
    def core(self) -> tuple[Any, ...]:
        """The action and the changes, without details and reasons, to compare decisions by."""
        changes = [structs.replace(one, detail={}, reason="") for one in self.changes]
        return self.action, sorted(changes, key=lambda one: one.mst_key)

    def as_request(self) -> Request:
        """The request that it follows."""
        if self.action == ADD:
            rows = tuple(AddedRow.of(one.text, one.epochs) for one in self.changes)
            return Request(0, NOBODY, self.who, AddTrials(rows))
        if self.action == CLONE:
            row, (source, epoch) = self.only.text, self.only.origin
            wanted = CloneTrial(row.compile_params, row.fit_params, self.only.epochs, epoch)
            return Request(0, source, self.who, wanted)
        if self.action == STOP:
            return Request(0, self.only.mst_key, self.who, StopTrial(self.only.epochs))
        return Request(0, NOBODY, self.who, self.wanted)

    @property
    def wanted(self) -> Wanted:
        """The request that a decision about the search as a whole follows.

        Raises:
            InvalidArgument: it is something else.
        """
        return convert(_KINDS[self.action], self.detail, self.action)


def add(changes: Iterable[Change], reason: str = "", who: str = "") -> Decision:
    """Configurations join the run, and are planned together."""
    found = tuple(sorted(changes, key=lambda one: one.mst_key))
    return Decision(ADD, found, reason, who)


def clone(change: Change, source: tuple[int, int], reason: str = "", who: str = "") -> Decision:
    """A configuration joins the run with the state that another one had after an epoch."""
    found = structs.replace(change, source=source[0], source_epoch=source[1])
    return Decision(CLONE, (found,), reason, who)


def stop(
    mst_key: int,
    epoch: int,
    reason: str = "",
    who: str = "",
    detail: Mapping[str, Any] | None = None,
) -> Decision:
    """A configuration is trained no further: its model is that after an epoch that it has done."""
    return Decision(STOP, (Change(mst_key, epoch, detail=dict(detail or {})),), reason, who)


def promote(
    mst_key: int, budget: int, reason: str = "", detail: Mapping[str, Any] | None = None
) -> Decision:
    """A configuration is trained until so many epochs are done, also if it was stopped."""
    return Decision(PROMOTE, (Change(mst_key, budget, detail=dict(detail or {})),), reason)


def note(wanted: Wanted, reason: str, who: str = "") -> Decision:
    """A decision about the search as a whole."""
    return Decision(action_of(wanted), (), reason, who, detail=plain(wanted))


# -- requests -----------------------------------------------------------------------------------------
_MOST = 2**31 - 1
Whole = Annotated[int, Meta(ge=-_MOST, le=_MOST)]
Count = Annotated[int, Meta(ge=1, le=_MOST)]


class Cancel(Wire, frozen=True):
    """Give up a configuration: there is no model of it."""


class StopTrial(Wire, frozen=True):
    """Train a trial no further.

    Attributes:
        epoch: whose state is the model, where that was decided already; None for the last one.
    """

    epoch: int | None = None


class AddedRow(Wire, frozen=True, array_like=True):
    """A configuration that a search shall try; None for the epochs of its method."""

    model_id: Whole
    compile_params: str
    fit_params: str
    epochs: Count | None

    @classmethod
    def of(cls, row: ConfigurationText, epochs: int | None) -> AddedRow:
        """A row that is trained for some epochs."""
        return cls(row.model_id, row.compile_params, row.fit_params, epochs)

    @property
    def text(self) -> ConfigurationText:
        """The row of a table of configurations."""
        return ConfigurationText(self.model_id, self.compile_params, self.fit_params)


class AddTrials(Wire, frozen=True):
    """Try configurations that somebody proposes."""

    rows: Annotated[tuple[AddedRow, ...], Meta(min_length=1)]


class CloneTrial(Wire, frozen=True):
    """Try a copy of a trial with its weights.

    Attributes:
        compile_params, fit_params: of the copy; None for those of the trial.
        epochs: that it is trained for; None for those of the method.
        epoch: whose state is the start, where that was decided already; None for the last one.
    """

    compile_params: str | None = None
    fit_params: str | None = None
    epochs: Count | None = None
    epoch: int | None = None

    def row_of(self, row: ConfigurationText) -> ConfigurationText:
        """The row of the copy of a configuration."""
        compile_params, fit_params = self.compile_params, self.fit_params
        return ConfigurationText(
            row.model_id,
            row.compile_params if compile_params is None else compile_params,
            row.fit_params if fit_params is None else fit_params,
        )


class Extension(Wire, frozen=True):
    """Go on with a search that has ended, or stopped.

    Attributes:
        params: more of the parameters of its method.
        max_seconds: that it may take more, and then ends; None for any time.
        max_epochs, max_configurations: added to its budget.
        until: seconds of all drivers together after which it ends, as the driver that follows it has found.
    """

    params: dict[str, Count] = field(default_factory=dict)
    max_seconds: Annotated[float, Meta(gt=0)] | None = None
    max_epochs: Count | None = None
    max_configurations: Count | None = None
    until: float | None = None


class Ending(Wire, frozen=True):
    """Begin nothing any more in a search, and stop what runs.

    Attributes:
        stopped: the epoch after which each running trial was stopped, where that was decided already.
        fault: whether its decider has failed.
    """

    reason: str
    stopped: dict[int, int] | None = None
    fault: bool = False


Wanted = Cancel | StopTrial | AddTrials | CloneTrial | Space | Extension | Ending
_KINDS: Mapping[str, type[Wanted]] = {
    "cancel": Cancel,
    STOP: StopTrial,
    ADD: AddTrials,
    CLONE: CloneTrial,
    NARROW: Space,
    EXTEND: Extension,
    FINISH: Ending,
}
_ACTIONS = {kind: action for action, kind in _KINDS.items()}


def action_of(wanted: Wanted) -> str:
    """The action that the catalog has for what is wanted."""
    return _ACTIONS[type(wanted)]


class Request(Wire, frozen=True):
    """Request of another session, or of the clock, about a configuration or a search.

    Attributes:
        request_id: of the row in the catalog; 0 for the clock.
        mst_key: of the configuration that it is about; 0 for none.
        who: a role.
    """

    request_id: int
    mst_key: int
    who: str
    wanted: Wanted

    @property
    def action(self) -> str:
        """The action that the catalog has for it."""
        return action_of(self.wanted)

    @property
    def is_awaited(self) -> bool:
        """True if somebody waits for an answer; who extends a search drives it."""
        return not isinstance(self.wanted, Extension)


class Answer(Wire, frozen=True):
    """Answer of a driver to a request: the configurations that it has changed, or why it does not follow."""

    mst_keys: tuple[int, ...] = ()
    error: str | None = None
    hint: str | None = None


def read_request(
    request_id: int, action: str, mst_key: int | None, who: str, detail: str
) -> Request:
    """A request as it is in the catalog, where the owner of a run may have written anything.

    What only a driver decides is left out.

    Args:
        request_id, action, mst_key, who: as the catalog has them.
        detail: JSON.

    Raises:
        InvalidArgument: it is no request.
    """
    if action not in _KINDS:
        raise InvalidArgument(
            f"action: got {action!r} of a configuration; allowed: {', '.join(_KINDS)}"
        )
    wanted = decode(_KINDS[action], detail, action)
    if isinstance(wanted, StopTrial | CloneTrial):
        wanted = structs.replace(wanted, epoch=None)
    elif isinstance(wanted, Extension):
        wanted = structs.replace(wanted, until=None)
    elif isinstance(wanted, Ending):
        wanted = Ending(f"asked for by {who}")
    return Request(request_id, mst_key or NOBODY, who, wanted)

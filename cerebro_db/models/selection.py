"""Configurations, generated or listed, put into a model selection table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from cerebro_db.configs.architectures.freezing import parse_freeze
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.frameworks import (
    check_architecture,
    check_groups,
    check_members,
    compile_params_in,
    default,
    framework_in,
    with_dropout,
    with_frozen,
)
from cerebro_db.configs.grids import model_selection
from cerebro_db.configs.grids.grid import Choices, Grid, metrics_notice, parse_compile_grid
from cerebro_db.configs.grids.groups import PARAM_GROUPS, parse_groups
from cerebro_db.configs.grids.model_selection import Frameworks, Suits, checked_model_ids
from cerebro_db.configs.grids.parameters import (
    CompileParams,
    ConfigurationText,
)
from cerebro_db.errors import (
    CerebroError,
    InvalidArchitecture,
    InvalidArgument,
    UndefinedTable,
    WrongObjectType,
)
from cerebro_db.models.architectures import limits_of
from cerebro_db.models.object_tables import ObjectTable, object_table
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import lock
from cerebro_db.postgres.sessions.session import Session, Tick
from cerebro_db.postgres.tables import libraries
from cerebro_db.postgres.tables.kinds import CONFIGURATIONS
from cerebro_db.postgres.tables.outputs import Outputs, replaced
from cerebro_db.postgres.tables.relations import (
    Relation,
    Use,
    find,
    find_if_there,
    new_name,
    new_table,
    require_text,
)
from cerebro_db.requests.models import GridRequest, ListRequest

ROLE = "model_selection_table"
Request = GridRequest | ListRequest
_HINT = "cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make such tables"


@dataclass(frozen=True)
class Selected:
    """Number of configurations that were asked for, and of those that are new in the table."""

    table: QualifiedName
    asked: int
    added: int
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        known = self.asked - self.added
        already = f"; {known} were there already" if known else ""
        return f"{self.added} configurations added to {self.table}{already}"


def _appends(request: Request) -> bool:
    """True if an existing table gets more rows."""
    return isinstance(request, GridRequest) and not request.replace


def _with_functions(request: Request, objects: ObjectTable) -> Request:
    """The request with the names of registered functions in it."""
    if isinstance(request, GridRequest):
        grid = request.compile_params_grid and objects.in_grid(request.compile_params_grid)
        return structs.replace(request, compile_params_grid=grid, object_table=objects.name)
    texts = [text and objects.in_params(text) for text in request.compile_params_list or ()]
    return structs.replace(request, compile_params_list=texts, object_table=objects.name)


def _configurations(
    request: Request, tick: Tick, suits: Suits | None = None, frameworks: Frameworks | None = None
) -> list[ConfigurationText]:
    """Configurations that a grid stands for, or every combination of what is listed."""
    if isinstance(request, ListRequest):
        lists = request.model_id_list, request.compile_params_list, request.fit_params_list
        return model_selection.combine(*lists, frameworks)
    for name in ("compile_params_grid", "fit_params_grid", "search_type"):
        _check_given(name, getattr(request, name))
    return model_selection.generate(
        request.model_id_list,
        str(request.compile_params_grid),
        str(request.fit_params_grid),
        str(request.search_type),
        request.num_configs,
        request.random_state,
        tick,
        suits,
        frameworks,
    )


def select(session: Session, request: Request) -> Selected:
    """Write configurations and the summary beside them, or nothing at all.

    Args:
        session: in a transaction; knows where the names are looked for.
        request: what to write.

    Raises:
        InvalidArgument: a parameter is wrong, or a model_id is not in the architecture table.
        DuplicateTable: a list is loaded into a table that exists.
        WrongObjectType: a table is of another kind, or made for other architectures.
    """
    require_text(request.model_arch_table, "model_arch_table")
    require_text(request.model_selection_table, ROLE)
    objects = object_table(session, request.object_table)
    if objects is not None:
        request = _with_functions(request, objects)
    rows = _configurations(request, session.tick)
    models = find(session, request.model_arch_table, "model_arch_table")
    texts = _check_models(session, models, checked_model_ids(request.model_id_list))
    frameworks = {model_id: framework_in(text) for model_id, text in texts.items()}
    if any(one.name != default() for one in frameworks.values()):
        rows = _configurations(request, session.tick, None, frameworks)
    suiting = Suiting(texts, limits_of(session))
    if isinstance(request, GridRequest) and suiting.is_needed(rows):
        rows = _configurations(request, session.tick, suiting, frameworks)
    check_layers(texts, rows, limits_of(session))
    name, _ = _target(session, request)
    lock(session, f"configurations of {name}")
    added = _written(session, request, models, rows)
    notice = (
        metrics_notice(parse_compile_grid(str(request.compile_params_grid)))
        if isinstance(request, GridRequest)
        else None
    )
    return Selected(name, len(rows), added, (*suiting.notices, *([notice] if notice else [])))


def _check_given(name: str, value: str | None) -> None:
    if value is None:
        raise InvalidArgument(f"{name}: got NULL; allowed: a text")


# Checks of what is about layers, by the names of parameters; each raises InvalidArchitecture.
_ABOUT_LAYERS: Mapping[str, Callable[[dict[str, Any], Any], object]] = {
    "dropout": with_dropout,
    "freeze": lambda config, value: with_frozen(config, parse_freeze(value, "freeze")),
    "loss_per_member": lambda config, value: check_members(config),
    PARAM_GROUPS: lambda config, value: check_groups(config, parse_groups(value, PARAM_GROUPS)),
}
_ANY_RATE = 0.5


def _is_given(value: Any) -> bool:
    """False for what is about no layer; a rate of 0 is about layers too."""
    return value is not None and value is not False and value not in ("", [], (), {})


def _values_of(grid: Grid, model_id: int, name: str) -> tuple[Any, ...]:
    found = grid.of(model_id).dimensions.get(name)
    if found is None:
        return ()
    return found.values if isinstance(found, Choices) else (found.low,)


class Suiting:
    """Suitability of values of parameters about layers for models.

    Args:
        texts: JSON of the models, by model_id.
        limits: of architectures.
    """

    def __init__(self, texts: Mapping[int, str], limits: ArchitectureLimits) -> None:
        self._texts, self._limits = texts, limits
        self._configs: dict[int, dict[str, Any]] = {}
        self._found: dict[tuple[int, str, str], bool] = {}
        self._kept: set[str] = set()

    def is_needed(self, rows: Sequence[ConfigurationText]) -> bool:
        """True if some rows are about layers that only some of the models have.

        What suits no model is a mistake, which is refused.
        """
        about = {
            (row.model_id, row.compile_params)
            for row in rows
            if any(name in row.compile_params for name in _ABOUT_LAYERS)
        }
        for model_id, text in about:
            for name, value in zip(
                _ABOUT_LAYERS, _layers_of(self._params(model_id, text)), strict=True
            ):
                if _is_given(value) and self._suits(model_id, name, value):
                    self._kept.add(name)
        return not all(self._found.values())

    def _params(self, model_id: int, text: str) -> CompileParams:
        return params_of(model_id, self._texts[model_id], text)

    def left_out(self, grid: Grid, model_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Names of parameters of which no value suits a model, but some value suits another one.

        Args:
            grid: of compile parameters.
            model_ids: of the models.
        """
        found: dict[int, tuple[str, ...]] = {}
        for name in _ABOUT_LAYERS:
            values = {
                model_id: [one for one in _values_of(grid, model_id, name) if _is_given(one)]
                for model_id in model_ids
            }
            without = [
                model_id
                for model_id, given in values.items()
                if given and not any(self._suits(model_id, name, one) for one in given)
            ]
            if any(given for model_id, given in values.items() if model_id not in without):
                self._kept.add(name)
                found |= {model_id: (*found.get(model_id, ()), name) for model_id in without}
        return found

    def __call__(self, model_id: int, name: str, value: Any) -> bool:
        """True if a value suits a model, or suits none."""
        if name not in self._kept or not _is_given(value):
            return True
        return self._suits(model_id, name, value)

    @property
    def notices(self) -> tuple[str, ...]:
        """Values that were left out, in words."""
        out = {
            (name, model_id)
            for (model_id, name, _), suits in self._found.items()
            if not suits and name in self._kept
        }
        return tuple(
            f"{name} is left out where no layer of the architecture has it: model_id "
            + ", ".join(str(model_id) for of, model_id in sorted(out) if of == name)
            for name in sorted({name for name, _ in out})
        )

    def _suits(self, model_id: int, name: str, value: Any) -> bool:
        value = _ANY_RATE if name == "dropout" else value  # it is about the layers alone
        key = (model_id, name, repr(value))
        if key not in self._found:
            self._found[key] = self._tried(model_id, name, value)
        return self._found[key]

    def _tried(self, model_id: int, name: str, value: Any) -> bool:
        if model_id not in self._configs:
            self._configs[model_id] = check_architecture(self._texts[model_id], self._limits)
        try:
            _ABOUT_LAYERS[name](self._configs[model_id], value)
        except InvalidArchitecture:
            return False
        except InvalidArgument:  # it is refused when the parameters are parsed
            return True
        return True


def _check_models(session: Session, models: Relation, model_ids: Sequence[int]) -> dict[int, str]:
    """The JSON of the models; every one is there once."""
    missing = [name for name in ("model_id", "model_arch") if not models.has(name)]
    if missing:
        raise WrongObjectType(
            f"model_arch_table: {models.name} has no column {missing[0]}",
            hint="cerebro.cerebro_load_model makes such tables",
        )
    wanted = sorted(model_ids)
    found = session.run(libraries.architectures(models.name), (wanted,))
    ids = [model_id for model_id, _ in found]
    wrong = [model_id for model_id in wanted if ids.count(model_id) != 1]
    if wrong:
        raise InvalidArgument(
            f"model_id_list: got {wrong}; allowed: ids that {models.name} has exactly once",
            hint=f"SELECT model_id FROM {models.name} shows those there are",
        )
    return dict(found)


def check_layers(
    texts: Mapping[int, str], rows: Sequence[ConfigurationText], limits: ArchitectureLimits
) -> None:
    """Check that the models have the layers that parameters are about.

    Args:
        texts: JSON of the models, by model_id.
        rows: configurations of them.
        limits: of architectures.

    Raises:
        InvalidArgument: a model has no layer that its dropout, or what it freezes, is about.
    """
    pairs = {(row.model_id, row.compile_params) for row in rows}
    wanted = {(id, _layers_of(params_of(id, texts[id], text))) for id, text in sorted(pairs)}
    for model_id, values in sorted(wanted, key=repr):
        given = [pair for pair in zip(_ABOUT_LAYERS, values, strict=True) if _is_given(pair[1])]
        try:
            config = check_architecture(texts[model_id], limits) if given else {}
            for name, value in given:
                _ABOUT_LAYERS[name](config, value)
        except CerebroError as error:
            error.message = f"model_id {model_id}: {error.message}"
            raise


def params_of(model_id: int, architecture: str, text: str) -> CompileParams:
    """The compile parameters of a configuration of a model.

    Raises:
        InvalidArgument: its framework does not know something in them.
    """
    try:
        return compile_params_in(architecture, text)
    except CerebroError as error:
        error.message = f"model_id {model_id}: {error.message}"
        raise


def _layers_of(params: CompileParams) -> tuple[Any, ...]:
    """Values of the parameters about layers, in the order of ``_ABOUT_LAYERS``."""
    return tuple(getattr(params, name) for name in _ABOUT_LAYERS)


def _target(session: Session, request: Request) -> tuple[QualifiedName, Relation | None]:
    """The table's name, and the table if rows are to be added to it."""
    text, suffixes = request.model_selection_table, (libraries.SELECTION_SUFFIX,)
    if _appends(request):
        found = find_if_there(session, text, ROLE, Use.WRITE)
        if found is not None:
            return found.name, found
    if request.replace:
        return new_name(session, text, ROLE), None
    return new_table(session, text, ROLE, suffixes), None


def _outputs(name: QualifiedName, request: Request, models: Relation) -> Outputs:
    text, suffixes = str(request.model_selection_table), CONFIGURATIONS.suffixes
    replace = bool(request.replace)
    return Outputs(name, text, ROLE, CONFIGURATIONS, suffixes, replace, inputs=(models.oid,))


def _written(
    session: Session, request: Request, models: Relation, rows: Sequence[ConfigurationText]
) -> int:
    name, found = _target(session, request)
    summary = name.suffixed(libraries.SELECTION_SUFFIX)
    if found is None:
        with replaced(session, _outputs(name, request, models)):
            session.run(libraries.create_selection(name))
            values = (str(models.name), request.object_table)
            session.run(libraries.create_selection_summary(summary, session.anywhere), values)
    else:
        _check_selection(session, found, models, request.object_table)
    columns = (
        [row.model_id for row in rows],
        [row.compile_params for row in rows],
        [row.fit_params for row in rows],
    )
    return int(session.run(libraries.add_configurations(name), columns)[0][0])


def _check_selection(
    session: Session, found: Relation, models: Relation, objects: str | None
) -> None:
    """The table is a selection of the same architectures; a summary that was dropped is made anew."""
    missing = [name for name in libraries.SELECTION_COLUMNS if not found.has(name)]
    if found.kind not in ("r", "p") or missing:
        what = f"no column {missing[0]}" if missing else "no rows that could be added to"
        raise WrongObjectType(f"{ROLE}: {found.name} has {what}", hint=_HINT)
    summary = found.name.suffixed(libraries.SELECTION_SUFFIX)
    try:
        find(session, str(summary), ROLE)
    except UndefinedTable:
        session.run(
            libraries.create_selection_summary(summary, session.anywhere),
            (str(models.name), objects),
        )
        return
    names = session.run(libraries.selected_architectures(summary))
    if len(names) != 1 or find(session, names[0][0], "model_arch_table").oid != models.oid:
        known = ", ".join(str(row[0]) for row in names) or "nothing"
        raise InvalidArgument(
            f"model_arch_table: got {models.name}; {found.name} has configurations of {known}",
            hint="give another model_selection_table, or the same architectures",
        )

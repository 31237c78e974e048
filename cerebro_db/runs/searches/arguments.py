"""The arguments of a search as they were given, and the request that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.configs.grids.search_methods import GRID, find_method
from cerebro_db.configs.messages import check_range
from cerebro_db.core.search import UNLIMITED, Budget
from cerebro_db.core.search_texts import (
    MAX_CONFIGURATIONS,
    parse_early_stopping,
    parse_method,
    parse_objectives,
)
from cerebro_db.core.spec import EVERY_HOP, Space
from cerebro_db.decide.strategies import DEFAULT
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.runs.request import check_seconds
from cerebro_db.runs.searches.requests import space_of
from cerebro_db.runs.searches.results import METHOD, PARAMS, RANDOM_STATE
from cerebro_db.runs.searches.search import SearchRequest

MAX_TOTAL_EPOCHS = 2**31 - 1


@dataclass(frozen=True)
class SearchArguments:
    """The arguments of ``cerebro_search``, as given.

    Attributes:
        search_path: for the names; None leaves the sessions' own.
        cores: of the server, from which defaults of workers and threads come.
    """

    source_table: str | None
    model_output_table: str | None
    model_arch_table: str | None
    model_selection_table: str | None
    model_id_list: Sequence[int | None] | None
    compile_params_grid: str | None
    fit_params_grid: str | None
    automl_method: str | None = None
    automl_params: str | None = None
    random_state: int | None = None
    object_table: str | None = None
    use_gpus: bool | None = False
    validation_table: str | None = None
    metrics_compute_frequency: int | None = None
    name: str | None = None
    description: str | None = None
    use_caching: bool | None = True
    objective: str | None = None
    early_stopping: str | None = None
    max_seconds: float | None = None
    max_epochs: int | None = None
    max_configs: int | None = None
    warm_start_run: int | None = None
    seed: int | None = 0
    num_workers: int | None = None
    concurrency: int | None = None
    deterministic: bool | None = True
    durability: str | None = EVERY_HOP
    schedule: str | None = DEFAULT
    replace: bool | None = False
    search_path: CallerPath | None = None
    cores: int = 1

    def request(self) -> SearchRequest:
        """The request that they make, parsed.

        Raises:
            InvalidArgument: one of them is wrong, whatever the tables hold.
        """
        method, params = parse_method(self.automl_method, self.automl_params)
        check_range("random_state", self.random_state, 0, 2**31 - 1)
        if method == GRID and self.random_state is not None:
            raise InvalidArgument(
                f"random_state: got {self.random_state}; it must be NULL for automl_method := {GRID!r}, which draws "
                "nothing",
                hint="seed is that of the weights, and of the order of rows",
            )
        return SearchRequest(
            source_table=self.source_table,
            model_output_table=self.model_output_table,
            model_arch_table=self.model_arch_table,
            model_selection_table=self.model_selection_table,
            object_table=self.object_table,
            space=self._space(samples=find_method(method).samples, method=method),
            method=method,
            params=params,
            objective=parse_objectives(self.objective),
            early_stopping=parse_early_stopping(self.early_stopping),
            budget=self._budget(),
            deterministic=self.deterministic is not False,
            concurrency=self.concurrency,
            warm_start_run=self.warm_start_run,
            use_gpus=self.use_gpus,
            validation_table=self.validation_table,
            metrics_compute_frequency=self.metrics_compute_frequency,
            name=self.name,
            description=self.description,
            use_caching=self.use_caching,
            seed=self.seed,
            num_workers=self.num_workers,
            durability=self.durability,
            schedule=self.schedule,
            replace=self.replace,
            search_path=self.search_path,
            cores=self.cores,
            given=self._given(),
            random_state=self.random_state,
        )

    def _given(self) -> dict[str, str]:
        """Texts for the output tables."""
        texts = {
            METHOD: self.automl_method,
            PARAMS: self.automl_params,
            RANDOM_STATE: None if self.random_state is None else str(self.random_state),
        }
        return {name: text for name, text in texts.items() if text is not None}

    def _space(self, *, samples: bool, method: str) -> Space:
        """The space, its texts parsed once."""
        space = space_of(self.model_id_list, self.compile_params_grid, self.fit_params_grid)
        for grid, what in ((space.compile_grid, "compile"), (space.fit_grid, "fit")):
            if grid.has_range() and not samples:
                raise InvalidArgument(
                    f"{what}_params_grid: got a range; allowed with automl_method := {method!r}: "
                    "lists of values",
                    hint="every other method draws from ranges, such as 'random'",
                )
        return space

    def _budget(self) -> Budget:
        check_seconds(self.max_seconds)
        check_range("max_epochs", self.max_epochs, 1, MAX_TOTAL_EPOCHS)
        check_range("max_configs", self.max_configs, 1, MAX_CONFIGURATIONS)
        return Budget(
            max_seconds=self.max_seconds,
            max_epochs=UNLIMITED if self.max_epochs is None else self.max_epochs,
            max_configurations=UNLIMITED if self.max_configs is None else self.max_configs,
        )

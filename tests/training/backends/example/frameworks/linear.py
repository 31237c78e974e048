"""The smallest framework: softmax of one linear layer. Its JSON is ``{"framework": "linear", "features": 6, "classes": 3}``."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits, refuse
from cerebro_db.configs.architectures.memory import Footprint
from cerebro_db.configs.frameworks import Config
from cerebro_db.configs.grids.parameters import CompileParams, parse_compile_params
from cerebro_db.configs.names import Format


class Linear:
    name = title = "linear"
    is_default = False
    packages = ("numpy",)
    extras = ("linear",)
    is_preloaded = False
    compiles = False
    has_layers = False
    formats = (Format.NPZ,)
    footprint = Footprint(base=30, program=1, compiled=1)

    def owns(self, config: Config) -> bool:
        return config.get("framework") == self.name

    def owns_file(self, data: bytes) -> bool:
        return data.startswith(b"linear")

    def check_architecture(
        self, config: dict[str, Any], limits: ArchitectureLimits
    ) -> dict[str, Any]:
        sizes = config.get("features"), config.get("classes")
        if set(config) != {"framework", "features", "classes"} or not all(
            isinstance(size, int) and 0 < size < limits.integer for size in sizes
        ):
            refuse("got something else than numbers of features and classes")
        return config

    def output_names(self, config: Config) -> tuple[str, ...]:
        return ("classes",)

    def with_dropout(self, config: Config, rate: float) -> dict[str, Any]:
        refuse(f"got dropout={rate}, but it has no dropout")

    def with_frozen(self, config: Config, patterns: tuple[str, ...]) -> dict[str, Any]:
        refuse(f"got freeze={patterns[0]!r}, but no layer has such a name")

    def check_groups(self, config: Config, groups: Any) -> None:
        refuse(f"got param_groups of {groups[0].pattern!r}, but no layer has such a name")

    def may_train(self, config: Config) -> bool:
        return True

    def check_members(self, config: Config) -> None:
        refuse("got loss_per_member, but it has no members")

    def optimizer(self, name: str, what: str) -> None:
        return None

    def compile_params(self, text: str) -> CompileParams:
        return parse_compile_params(text)


FRAMEWORK = Linear()

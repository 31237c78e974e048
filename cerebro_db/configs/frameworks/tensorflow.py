"""TensorFlow with Keras: its architectures are the JSON of Keras, checked against the lists in ``configs/architectures``."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.architectures import architecture, freezing, members
from cerebro_db.configs.architectures.limits import ArchitectureLimits, check_tree
from cerebro_db.configs.architectures.memory import Footprint
from cerebro_db.configs.arguments import Argument
from cerebro_db.configs.frameworks import Config
from cerebro_db.configs.functions.optimizers import ARGUMENT_ALIASES, DECAY, OPTIMIZERS
from cerebro_db.configs.grids import outputs
from cerebro_db.configs.grids.groups import Groups, check_rates
from cerebro_db.configs.grids.parameters import CompileParams, parse_compile_params
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidArgument

# They have several rates already, or keep numbers that are of one rate.
_ONE_RATE = ("Adafactor", "Ftrl", "MultiOptimizer", "Muon", "ScheduleFreeAdamW")


class TensorFlow:
    """TensorFlow with Keras, whose JSON names no framework."""

    name = "tensorflow"
    title = "TensorFlow"
    is_default = True
    packages = ("tensorflow", "keras")
    extras = ("cpu", "gpu")
    is_preloaded = True
    compiles = True
    has_layers = True
    formats = (Format.KERAS, Format.ONNX, Format.NPZ)
    footprint = Footprint(base=750, program=20, compiled=60)  # of version 2.21

    def owns(self, config: Config) -> bool:
        return "framework" not in config

    def owns_file(self, data: bytes) -> bool:
        return False  # whatever nobody else owns is read as a file of Keras, and refused with what it lacks

    def check_architecture(
        self, config: dict[str, Any], limits: ArchitectureLimits
    ) -> dict[str, Any]:
        check_tree(config, limits)
        return architecture.checked(config, limits)

    def output_names(self, config: Config) -> tuple[str, ...]:
        return outputs.output_names(config)

    def with_dropout(self, config: Config, rate: float) -> dict[str, Any]:
        return architecture.with_dropout(config, rate)

    def with_frozen(self, config: Config, patterns: tuple[str, ...]) -> dict[str, Any]:
        return freezing.with_frozen(config, patterns)

    def check_groups(self, config: Config, groups: Groups) -> None:
        """Check nothing: the names of weights are known when a model is built."""

    def may_train(self, config: Config) -> bool:
        return freezing.may_train(config)

    def check_members(self, config: Config) -> None:
        members.check_members(config)

    def compile_params(self, text: str) -> CompileParams:
        params = parse_compile_params(text)
        if params.optimizer.name in _ONE_RATE and params.param_groups:
            raise InvalidArgument(
                f"param_groups: got the optimizer {params.optimizer.name}; allowed: others than "
                + ", ".join(_ONE_RATE)
            )
        check_rates(params.optimizer, params.param_groups)
        return params

    def optimizer(self, name: str, what: str) -> tuple[str, dict[str, Argument]] | None:
        head, dot, bare = name.rpartition(".")
        if head + dot not in OPTIMIZERS.prefixes or not OPTIMIZERS.has(bare):
            return None
        found = OPTIMIZERS.find(name, what)
        arguments = {argument.name: argument for argument in found.arguments}
        if "learning_rate" in arguments:  # a MultiOptimizer has none of its own
            arguments |= {alias: arguments[name] for alias, name in ARGUMENT_ALIASES.items()}
            arguments[DECAY.name] = DECAY
        return found.name, arguments


FRAMEWORK = TensorFlow()

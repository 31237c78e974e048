"""PyTorch: its architectures are programs that ``torch.export`` wrote, as JSON, checked against a list of operations."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from cerebro_db.configs.architectures.limits import ArchitectureLimits, refuse
from cerebro_db.configs.architectures.memory import Footprint
from cerebro_db.configs.arguments import Argument, nearest
from cerebro_db.configs.frameworks import Config
from cerebro_db.configs.frameworks.torch import losses, optimizers
from cerebro_db.configs.functions.metrics import MetricSpec, parse_metrics
from cerebro_db.configs.grids.groups import Groups, is_of
from cerebro_db.configs.grids.parameters import CompileParams, Vocabulary, parser_of
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import Format, is_custom
from cerebro_db.configs.zips import DAMAGED
from cerebro_db.errors import InvalidArgument

_DROPOUT = ("dropout", "native_dropout")


def _metrics(value: object, what: str) -> tuple[MetricSpec, ...]:
    found = parse_metrics(value, what)
    for one in found:
        if is_custom(one.name):
            raise InvalidArgument(
                f"{what}: got {one.name} for a PyTorch model; allowed: metrics of Keras",
                "registered functions compute with Keras",
            )
    return found


_compile_params = parser_of(
    Vocabulary(losses.parse_torch_loss, _metrics, optimizers.parse_torch_optimizer)
)


class PyTorch:
    """PyTorch, whose models are programs of ``torch.export``."""

    name = "torch"
    title = "PyTorch"
    is_default = False
    packages = ("torch",)
    extras = ("torch",)
    is_preloaded = False
    compiles = False
    has_layers = False
    formats = (Format.PT2, Format.SAFETENSORS, Format.NPZ)
    footprint = Footprint(
        base=450, program=5, compiled=5
    )  # of version 2.14, with the libraries of CUDA

    def owns(self, config: Config) -> bool:
        return config.get("framework") == self.name

    def owns_file(self, data: bytes) -> bool:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                names = archive.namelist()
        except DAMAGED:
            return False
        marks = ("archive_format", "serialized_exported_program.json")
        return any(name.endswith(marks) for name in names)

    def check_architecture(
        self, config: dict[str, Any], limits: ArchitectureLimits
    ) -> dict[str, Any]:
        from cerebro_db.configs.aten.check import check_architecture

        return check_architecture(config, limits)

    def output_names(self, config: Config) -> tuple[str, ...]:
        return tuple(map(str, config["outputs"]))

    def with_dropout(self, config: Config, rate: float) -> dict[str, Any]:
        nodes = config["train"]["graph"]["nodes"]
        if not any(name in str(node.get("target")) for node in nodes for name in _DROPOUT):
            refuse(
                f"got dropout={rate}, but it has no dropout layer",
                "Leave dropout out of the parameters for this architecture; a module that was exported in eval mode "
                "has lost its own.",
            )
        return dict(config)

    def with_frozen(self, config: Config, patterns: tuple[str, ...]) -> dict[str, Any]:
        names = [str(one["name"]) for one in config["parameters"]]
        for pattern in patterns:
            if not any(is_of(name, pattern) for name in names):
                refuse(
                    f"got freeze={shown(pattern)}, but no module with parameters has such a name",
                    nearest(pattern, names),
                )
        frozen = [
            {**one, "trainable": False}
            if any(is_of(str(one["name"]), pattern) for pattern in patterns)
            else one
            for one in config["parameters"]
        ]
        return {**config, "parameters": frozen}

    def check_groups(self, config: Config, groups: Groups) -> None:
        names = [str(one["name"]) for one in config["parameters"]]
        for group in groups:
            if not any(is_of(name, group.pattern) for name in names):
                refuse(
                    f"got param_groups of {shown(group.pattern)}, but no module with parameters has such a name",
                    nearest(group.pattern, names),
                )

    def may_train(self, config: Config) -> bool:
        return any(one.get("trainable", True) for one in config["parameters"])

    def check_members(self, config: Config) -> None:
        refuse("got loss_per_member, but it has no members", "ensembles in one net are Keras nets")

    def compile_params(self, text: str) -> CompileParams:
        params = _compile_params(text)
        optimizers.check_groups(params.optimizer, params.param_groups)
        return params

    def optimizer(self, name: str, what: str) -> tuple[str, dict[str, Argument]] | None:
        bare = optimizers.bare(name)
        if not optimizers.TORCH_OPTIMIZERS.has(bare):
            return None
        found = optimizers.TORCH_OPTIMIZERS.find(bare, what)
        return found.name, optimizers.arguments_of(found)


FRAMEWORK = PyTorch()

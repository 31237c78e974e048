"""Frameworks: what is known of each without importing it. Each is a module here that has a ``Framework`` named ``FRAMEWORK``.

The framework of a model follows from its architecture: ``framework_of`` asks each module whether the JSON is its own.
What computes is the backend of the same name in ``training/backends``. No other code names a framework: a new one is a
module here and a package there, both found by their files. ``docs/development.md`` lists what they have to answer.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol

from cerebro_db.configs.architectures.limits import ArchitectureLimits, read_json
from cerebro_db.configs.architectures.memory import Footprint
from cerebro_db.configs.arguments import Argument
from cerebro_db.configs.functions.optimizers import OPTIMIZERS
from cerebro_db.configs.grids.groups import Groups
from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidArchitecture, InvalidArgument, MissingLibrary

Config = Mapping[str, Any]
_MOST_MODELS = 256
_DEFAULT_LIMITS = ArchitectureLimits()


class Framework(Protocol):
    """A framework, its architectures and its configurations.

    Attributes:
        name: of its module here, and of its backend.
        title: in messages.
        is_default: whether it has the nets that are known by a name, registered functions and files of events.
        packages: modules that it imports; they are installed by one of ``extras`` of the package.
        extras: of the package, as pip takes them.
        is_preloaded: whether keepers import it before they fork, as it takes seconds; else trainers that need it do.
        compiles: whether programs may be compiled to machine code, by the rule of jit.
        has_layers: whether layers can be added to its architectures, as calibration and ensembles do.
        formats: in which models are exported.
        footprint: memory that it takes in a process that computes, as measured.
    """

    name: str
    title: str
    is_default: bool
    packages: tuple[str, ...]
    extras: tuple[str, ...]
    is_preloaded: bool
    compiles: bool
    has_layers: bool
    formats: tuple[Format, ...]
    footprint: Footprint

    def owns(self, config: Config) -> bool:
        """True for the JSON of its architectures; of any object, checked or not."""

    def owns_file(self, data: bytes) -> bool:
        """True for a file that it writes models to."""

    def check_architecture(
        self, config: dict[str, Any], limits: ArchitectureLimits
    ) -> dict[str, Any]:
        """The configuration of an allowed model, from JSON within the limits.

        Raises:
            InvalidArchitecture: something in it is not allowed.
        """

    def output_names(self, config: Config) -> tuple[str, ...]:
        """The names of the outputs of a checked architecture."""

    def with_dropout(self, config: Config, rate: float) -> dict[str, Any]:
        """A copy in which all dropout has this rate.

        Raises:
            InvalidArchitecture: it has none.
        """

    def with_frozen(self, config: Config, patterns: tuple[str, ...]) -> dict[str, Any]:
        """A copy in which what these patterns name does not train.

        Raises:
            InvalidArchitecture: a pattern names nothing.
        """

    def check_groups(self, config: Config, groups: Groups) -> None:
        """Check that each pattern of parameters with a rate of their own names one.

        Raises:
            InvalidArchitecture: one names nothing.
        """

    def may_train(self, config: Config) -> bool:
        """Whether an architecture has weights that train, as far as its JSON tells."""

    def check_members(self, config: Config) -> None:
        """Check that each output is the mean of its members.

        Raises:
            InvalidArchitecture: one is not.
        """

    def optimizer(self, name: str, what: str) -> tuple[str, dict[str, Argument]] | None:
        """The name of an optimizer as it is written into texts, and its arguments by all their names; None for none such.

        Raises:
            InvalidArgument: there is one, which is refused.
        """

    def compile_params(self, text: str) -> CompileParams:
        """The compile parameters of a configuration, by the names of losses, metrics and optimizers that it has.

        Raises:
            InvalidArgument: naming the first one that it does not have, or what is wrong with it.
        """


@functools.cache
def frameworks() -> Mapping[str, Framework]:
    """All frameworks by their names, the default one first."""
    modules = sorted(found.name for found in pkgutil.iter_modules(__path__))
    found: list[Framework] = [
        importlib.import_module(f"{__name__}.{name}").FRAMEWORK for name in modules
    ]
    return {one.name: one for one in sorted(found, key=lambda one: not one.is_default)}


def default() -> str:
    """The name of the framework for what belongs to no architecture."""
    return next(iter(frameworks()))


def named(text: str | None) -> tuple[str, ...]:
    """The frameworks in a text such as ``tensorflow,torch``; none in an empty one, the default one without a text.

    Raises:
        InvalidArgument: one of them is not there.
    """
    if text is None:
        return (default(),)
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in frameworks():
            allowed = ", ".join(f"'{one}'" for one in frameworks())
            raise InvalidArgument(f"frameworks: got {shown(name)}; allowed: {allowed}")
    return names


def framework_of(config: Config) -> Framework:
    """The framework of an architecture.

    Raises:
        InvalidArchitecture: it names one that is not there.
    """
    for one in frameworks().values():
        if one.owns(config):
            return one
    names = ", ".join(f"'{name}'" for name in frameworks())
    raise InvalidArchitecture(
        f"model architecture: got the framework {shown(config.get('framework'))}; allowed: {names}"
    )


@functools.lru_cache(maxsize=_MOST_MODELS)
def framework_in(text: str) -> Framework:
    """The framework of the text of an architecture; the default one of a text that is none."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        config = None
    return framework_of(config if isinstance(config, dict) else {})


def framework_of_file(data: bytes) -> Framework:
    """The framework that writes such files; the default one, which says what it misses, where none does."""
    known = frameworks()
    return next((one for one in known.values() if one.owns_file(data)), known[default()])


def check_architecture(text: str, limits: ArchitectureLimits = _DEFAULT_LIMITS) -> dict[str, Any]:
    """The configuration of an allowed model, by the rules of its framework.

    Raises:
        InvalidArchitecture: something in it is not allowed.
    """
    # How long a text in it may be, each framework says: weights of a graph are texts, too.
    config = read_json(text, replace(limits, text=limits.characters))
    return framework_of(config).check_architecture(config, limits)


def output_names(config: Config) -> tuple[str, ...]:
    """The names of the outputs of a checked architecture."""
    return framework_of(config).output_names(config)


def with_dropout(config: Config, rate: float) -> dict[str, Any]:
    """A copy of a checked architecture in which all dropout has this rate."""
    return framework_of(config).with_dropout(config, rate)


def with_frozen(config: Config, patterns: tuple[str, ...]) -> dict[str, Any]:
    """A copy of a checked architecture in which what these patterns name does not train."""
    return framework_of(config).with_frozen(config, patterns)


def check_groups(config: Config, groups: Groups) -> None:
    """Check that each pattern of parameters with a rate of their own names one in a checked architecture."""
    framework_of(config).check_groups(config, groups)


def may_train(config: Config) -> bool:
    """Whether a checked architecture has weights that train, as far as its JSON tells."""
    return framework_of(config).may_train(config)


def compile_params_in(architecture: str, text: str) -> CompileParams:
    """The compile parameters of a configuration of the checked architecture in a text."""
    return framework_in(architecture).compile_params(text)


def meaning(text: str, framework: Framework | None = None) -> CompileParams:
    """The meaning of compile parameters to a framework, or else to the first one that understands them, the default first.

    What that framework does not know is refused where its models are looked at, with their numbers.

    Raises:
        InvalidArgument: no framework understands them; from the first one that knows their names.
    """
    errors: list[InvalidArgument] = []
    known = list(frameworks().values())
    for one in known if framework is None else [framework, *known]:
        try:
            return one.compile_params(text)
        except InvalidArgument as error:
            errors.append(error)
    raise next((error for error in errors if not _is_unknown(error)), errors[0])


def _is_unknown(error: InvalidArgument) -> bool:
    """True for an error about a name that another framework may know."""
    return any(words in error.message for words in (" unknown ", "allowed are those of "))


def optimizer_named(name: str, what: str) -> tuple[str, dict[str, Argument]]:
    """The name of an optimizer of any framework, and its arguments in all that have it.

    Raises:
        InvalidArgument: no framework has it.
    """
    known: list[tuple[str, dict[str, Argument]]] = []
    errors: list[InvalidArgument] = []
    for one in frameworks().values():
        try:
            known += filter(None, [one.optimizer(name, what)])
        except InvalidArgument as error:
            errors.append(error)
    if errors and not known:
        raise errors[0]
    if not known:
        OPTIMIZERS.find(name, what)  # which says what is near
    arguments: dict[str, Argument] = {}
    for _, own in reversed(known):
        arguments |= own
    return known[0][0], arguments


def check_members(config: Config) -> None:
    """Check that each output of a checked architecture is the mean of its members."""
    framework_of(config).check_members(config)


def check_layers_can_be_added(config: Config, what: str) -> None:
    """Refuse an architecture to which no layers can be added.

    Raises:
        InvalidArgument: naming its framework.
    """
    found = framework_of(config)
    if not found.has_layers:
        allowed = " or ".join(one.title for one in frameworks().values() if one.has_layers)
        raise InvalidArgument(
            f"{what}: got a model of {found.title}; allowed: a model of {allowed}"
        )


def check_format(config: Config, wanted: Format) -> None:
    """Refuse a format of files that a framework does not write.

    Raises:
        InvalidArgument: naming those that it does.
    """
    found = framework_of(config)
    if wanted not in found.formats:
        allowed = ", ".join(f"'{one}'" for one in found.formats)
        raise InvalidArgument(
            f"format: got '{wanted}' for a model of {found.title}; allowed: {allowed}"
        )


def is_installed(framework: Framework) -> bool:
    """Whether the packages of a framework are in this Python; none of them is imported."""
    return all(sys.modules.get(one) is not None or find_spec(one) for one in framework.packages)


@functools.cache
def installed() -> tuple[str, ...]:
    """The names of the frameworks that are in this Python."""
    return tuple(name for name, one in frameworks().items() if is_installed(one))


def held_for(names: Collection[str]) -> list[Framework]:
    """The frameworks in a process that computes models of some: these, and what keepers import before they fork."""
    preloaded = {name for name in installed() if frameworks()[name].is_preloaded}
    return [one for name, one in frameworks().items() if name in preloaded or name in names]


def require_installed(name: str) -> None:
    """Refuse a framework that is not in this Python.

    Raises:
        MissingLibrary: with the command that installs it.
    """
    if name not in installed():
        one = frameworks()[name]
        raise MissingLibrary(
            f"got a model of {one.title}, which is not installed on the server",
            hint=f'pip install "cerebro-db[{one.extras[0]}]" in the virtual environment of the server installs it',
        )

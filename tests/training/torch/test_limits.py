"""What a program may not do: reach beyond its tensors, write into its weights, take memory that is not measured."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from training.torch.nets import CLASSES, FEATURES, Exported, begun, rows, torch

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.aten import archive
from cerebro_db.configs.aten.check import check_architecture
from cerebro_db.configs.aten.graph import Argument, Node, Reference
from cerebro_db.configs.aten.operations import ATEN, may_be_view
from cerebro_db.errors import InvalidArchitecture, InvalidArgument, InvalidData
from cerebro_db.training.backends.torch import BACKEND
from cerebro_db.training.backends.torch.guarded import checked
from cerebro_db.training.backends.torch.operations import bounded
from cerebro_db.training.backends.torch.recurrent import operation
from cerebro_db.training.state import from_bytes, to_bytes

nn, ROW = torch.nn, torch.arange(3.0)
LIMITS = ArchitectureLimits()
SGD = "loss='cross_entropy',optimizer='SGD(lr=0.1)',metrics=['accuracy']"


class Computed(nn.Module):
    """A net whose rows go through a function before a layer."""

    def __init__(self, compute: Callable[[Any, Any], Any], count: int = FEATURES) -> None:
        super().__init__()
        self.head, self.scale = nn.Linear(count, CLASSES), nn.Parameter(torch.tensor(1.0))
        self.register_buffer("kept", torch.ones(1))
        self.compute = compute

    def forward(self, rows: Any) -> Any:
        return self.head(self.compute(self, rows) * self.scale)


def computed(compute: Callable[[Any, Any], Any], count: int = FEATURES) -> Exported:
    torch.manual_seed(3)
    return Exported(Computed(compute, count).train(), torch.zeros(2, FEATURES))


def with_node(net: Exported, target: str, change: Callable[[Any], Any]) -> Any:
    """The architecture with a change of the node of an operation."""
    found = copy.deepcopy(net.architecture)
    (node,) = [one for one in found["train"]["graph"]["nodes"] if target in one["target"]]
    change(node)
    return found


def test_a_parameter_may_be_one_number(torch_recipe: Any) -> None:
    net = computed(lambda module, rows: rows)
    assert (
        next(one["shape"] for one in net.architecture["parameters"] if one["name"] == "scale") == []
    )
    program = begun(torch_recipe(net, SGD), net.weights)
    program.train(*rows())
    assert program.save()["weights/scale"] != 1


def test_gradients_end_with_a_hop_and_without_one(torch_recipe: Any) -> None:
    def adding(module: Any, rows: Any) -> Any:
        return rows * module.kept.add_(module.scale)

    net = computed(adding)
    whole, hopping = (begun(torch_recipe(net, SGD), net.weights) for _ in range(2))
    features, ids = rows()
    for start in range(0, len(ids), 8):
        whole.train(features[start : start + 8], ids[start : start + 8])
        hopping.train(features[start : start + 8], ids[start : start + 8])
        state = hopping.save()
        hopping = begun(torch_recipe(net, SGD), net.weights)
        hopping.load(from_bytes(to_bytes(state)))
    assert to_bytes(whole.save()) == to_bytes(hopping.save())


@pytest.mark.parametrize(
    ("target", "change", "words"),
    [
        ("linear", lambda node: node["inputs"].reverse(), "each once, in the order"),
        ("linear", lambda node: node["inputs"].append(node["inputs"][0]), "each once, in the order"),
        ("linear", lambda node: node["outputs"].append({"as_none": True}), "results of"),
        ("linear", lambda node: node.update(outputs=[{"as_tensors": [node["outputs"][0]["as_tensor"]]}]), "results of"),
    ],
)  # fmt: skip
def test_nodes_are_as_their_operations(target: str, change: Any, words: str) -> None:
    net = computed(lambda module, rows: rows)
    with pytest.raises(InvalidArchitecture, match=words):
        BACKEND.check_size(with_node(net, target, change), LIMITS, None)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("einsum.default", ["a->a", [ROW]]),
        ("cartesian_prod.default", [[ROW]]),
        ("meshgrid.default", [[ROW]]),
        ("to.dtype_layout", [ROW]),
    ],
)
def test_what_may_be_the_memory_of_an_argument_is_known(name: str, given: list[Any]) -> None:
    found = operation(name)(*given)
    first = found if isinstance(found, torch.Tensor) else found[0]
    assert first.data_ptr() == ROW.data_ptr()
    values = [[Reference("row")] if isinstance(one, list) else one for one in given]
    names = [one.name for one in operation(name)._schema.arguments]
    arguments = [Argument(*pair, False) for pair in zip(names, values, strict=False)]
    assert may_be_view(Node(f"{ATEN}{name}", tuple(arguments), ("found",)))


def test_a_product_of_tensors_may_be_changed() -> None:
    net = computed(
        lambda module, rows: torch.einsum("bi,i->bi", rows, module.kept.expand(6)).add_(1.0)
    )
    assert BACKEND.check_size(net.architecture, LIMITS, None).parameters


def test_divisors_of_whole_numbers_are_of_32_bits() -> None:
    net = computed(lambda module, rows: (rows.int() % 3).float())
    BACKEND.check_size(net.architecture, LIMITS, None)

    def larger(node: Any) -> None:
        node["inputs"][1]["arg"] = {"as_int": 2**32 - 1}

    with pytest.raises(InvalidArchitecture, match="a positive constant"):
        BACKEND.check_size(with_node(net, "remainder", larger), LIMITS, None)


def test_a_grid_sampler_has_a_mode() -> None:
    def sampled(module: Any, rows: Any) -> Any:
        grid = rows.reshape(-1, 1, 3, 2)
        found = nn.functional.grid_sample(rows.reshape(-1, 1, 2, 3), grid, align_corners=True)
        return found.reshape(-1, 3)

    net = computed(sampled, 3)
    for place in (2, 3):

        def unknown(node: Any, place: int = place) -> None:
            node["inputs"][place]["arg"] = {"as_int": 7}

        with pytest.raises(InvalidArchitecture, match=r"=7 in the operation .* allowed: 0 to 2"):
            check_architecture(with_node(net, "grid_sampler", unknown), LIMITS)


def test_products_of_many_tensors_are_bounded() -> None:
    def product(module: Any, rows: Any) -> Any:
        held = module.kept.expand(FEATURES, FEATURES)
        return rows + torch.einsum("ij,jk,ki->i", held, held, held)

    net = computed(product)
    BACKEND.check_size(net.architecture, LIMITS, None)
    with pytest.raises(InvalidArchitecture, match="of 3 tensors"):
        BACKEND.check_size(net.architecture, replace(LIMITS, elements=FEATURES**3 - 1), None)


def test_steps_of_a_recurrent_layer_are_bounded() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(1, CLASSES)

        def forward(self, rows: Any) -> Any:
            return self.layer(rows.t().unsqueeze(-1))[0][-1]

    net = Exported(Steps().train(), torch.zeros(2, FEATURES))
    BACKEND.check_size(net.architecture, LIMITS, None)
    with pytest.raises(InvalidArchitecture, match=f"got {FEATURES} time steps"):
        BACKEND.check_size(net.architecture, replace(LIMITS, steps=0), None)


def test_a_multiple_of_the_rows_may_be_large_by_itself() -> None:
    net = computed(lambda module, rows: rows + torch.ones(7919 * 50, 1).sum())
    BACKEND.check_size(net.architecture, LIMITS, None)
    with pytest.raises(InvalidArchitecture, match="395950 numbers for 2 rows"):
        BACKEND.check_size(net.architecture, replace(LIMITS, elements=1000), None)


def test_the_graph_of_evaluation_is_checked_too() -> None:
    def wide(module: Any, rows: Any) -> Any:
        return rows if module.training else rows.repeat(1, 100)[:, :FEATURES]

    net = Exported.both(Computed(wide), torch.zeros(2, FEATURES))
    training = computed(wide)
    few = replace(LIMITS, elements=99 * FEATURES)
    size = BACKEND.check_size(training.architecture, few, None)
    assert BACKEND.check_size(net.architecture, LIMITS, None) == size
    with pytest.raises(InvalidArchitecture, match="numbers for one row"):
        BACKEND.check_size(net.architecture, few, None)


def test_evaluation_draws_nothing(full_net: Exported) -> None:
    with pytest.raises(InvalidArchitecture, match="draws random numbers in evaluation"):
        archive.read_both(full_net.file, full_net.file, LIMITS)


def test_attention_with_dropout_has_its_scores() -> None:
    def attending(share: float) -> Any:
        def attended(module: Any, rows: Any) -> Any:
            parts = rows.reshape(-1, 1, 3, 2)
            found = nn.functional.scaled_dot_product_attention(parts, parts, parts, dropout_p=share)
            return found.reshape(-1, FEATURES)

        return BACKEND.check_size(computed(attended).architecture, LIMITS, None).row_bytes

    assert attending(0.5) - attending(0.0) >= 3 * 4 * 3 * 3


def test_sizes_are_numbers() -> None:
    assert bounded(operator.mul)(2, 3) == 6
    for given in (("a" * 9, 2**40), ([1], 2**40)):
        with pytest.raises(InvalidData, match="no number"):
            bounded(operator.mul)(*given)
    with pytest.raises(InvalidData, match="no number"):
        bounded(operator.mod)("%99999999999d", 1)


def test_sizes_of_normalizations_and_scales_fit() -> None:
    inputs, four, two = torch.randn(2, 4, 3, 3), torch.ones(4), torch.ones(2)
    norm = ("native_batch_norm.default", [inputs, four, four, None, None, True, 0.1, 1e-5])
    group = ("native_group_norm.default", [inputs, four, four, 2, 4, 9, 2, 1e-5])
    scaled = ("upsample_nearest2d.default", [inputs, [6, 7], 2.0, 2.5])
    for name, given in (norm, group, scaled):
        found, wanted = checked(name)(*given), operation(name)(*given)
        first, second = (
            one if isinstance(one, torch.Tensor) else one[0] for one in (found, wanted)
        )
        assert torch.equal(first, second)
    for (name, given), place, wrong in (
        (norm, 1, two),
        (norm, 3, two),
        (group, 1, two),
        (group, 5, 10),
        (group, 3, -2),
        (scaled, 2, 1e-38),
        (scaled, 3, float("nan")),
    ):
        with pytest.raises(InvalidArchitecture, match="sizes that are not those of its tensors"):
            checked(name)(*given[:place], wrong, *given[place + 1 :])


def test_inputs_are_bounded() -> None:
    config = copy.deepcopy(computed(lambda module, rows: rows).architecture)
    config["inputs"][0]["shape"] = [10**12]
    with pytest.raises(InvalidArchitecture, match="numbers in a row"):
        check_architecture(config, LIMITS)


@pytest.mark.parametrize("text", ["cross_entropy(weight=[1.0,2.0])", "nll_loss(weight=[1.0])"])
def test_a_loss_has_a_weight_for_each_class(
    torch_recipe: Any, plain_net: Exported, text: str
) -> None:
    with pytest.raises(InvalidArgument, match="numbers; allowed: 3, one for each"):
        BACKEND.program(
            torch_recipe(plain_net, f"loss='{text}',optimizer='SGD',metrics=['accuracy']")
        )


def test_an_export_leaves_the_modes_of_a_module() -> None:
    from cerebro_db.client.exporting import exported

    module = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, CLASSES))
    exported(module, (torch.zeros(2, FEATURES),))
    assert [one.training for one in module] == [True, False, True]

"""States of PyTorch models: drawn, saved, loaded, handed on, to the same bits."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from training.torch.nets import CLASSES, FEATURES, Exported, begun, exported, mlp, rows, torch
from training.torch.test_numerics import Lstm, cnn

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.names import Format
from cerebro_db.errors import (
    CerebroError,
    InvalidArchitecture,
    InvalidArgument,
    InvalidState,
    RunFailed,
)
from cerebro_db.training.averaging import of_replica
from cerebro_db.training.backends.torch import BACKEND
from cerebro_db.training.state import LEARNING_RATE, from_bytes, to_bytes

nn = torch.nn
LOGITS = "loss='sparse_categorical_crossentropy(from_logits=True)',metrics=['accuracy']"
SGD = f"{LOGITS},optimizer='SGD(lr=0.1)'"
EMA = f"{LOGITS},optimizer='Adam(lr=0.01,use_ema=True,ema_overwrite_frequency=2)'"
LIMITS = ArchitectureLimits()


def equal(one: Any, other: Any) -> bool:
    """True if two states are the same to the bit."""
    return to_bytes(one) == to_bytes(other)


def test_a_seed_draws_the_weights_that_torch_draws(recipe: Any, full_net: Exported) -> None:
    program = BACKEND.program(recipe(full_net))
    first, again, other = (
        program.initial_state(recipe(full_net), seed, None) for seed in (7, 7, 8)
    )
    assert equal(first, again)
    assert not equal(first, other)
    assert all(name.startswith(("weights/", "optimizer/", "others/")) for name in first)
    torch.manual_seed(7)
    for name, tensor in mlp().state_dict().items():
        np.testing.assert_array_equal(first[f"weights/{name}"], tensor.numpy())


@pytest.mark.parametrize("text", [SGD, EMA, f"{LOGITS},optimizer='Nadam(lr=0.01)'"])
def test_states_go_on_to_the_same_bits(recipe: Any, full_net: Exported, text: str) -> None:
    one = recipe(full_net, text)
    first, second = begun(one, full_net.weights), begun(one, None, seed=9)
    for _ in range(3):
        first.train(*rows())
        second.load(from_bytes(to_bytes(first.save())))
        assert equal(first.save(), second.save())
        assert first.train(*rows()) == second.train(*rows())
        assert equal(first.save(), second.save())


def test_states_of_other_models_are_refused(recipe: Any, full_net: Exported) -> None:
    program = begun(recipe(full_net), full_net.weights)
    state = program.save()
    name = next(iter(state))
    for wrong in (state | {name: np.zeros((1, 2, 3), np.float32)}, {name: state[name]}):
        with pytest.raises(InvalidState):
            program.load(wrong)
    with pytest.raises(InvalidState):
        program.initial_state(recipe(full_net), 7, full_net.weights[4:])


def test_calls_of_whole_batches_are_one_call(recipe: Any, full_net: Exported) -> None:
    features, targets = rows()
    whole, parts = (begun(recipe(full_net), full_net.weights) for _ in range(2))
    loss = whole.train(features, targets)
    losses = [parts.train(features[s : s + 8], targets[s : s + 8]) for s in range(0, 24, 8)]
    assert equal(whole.save(), parts.save())
    assert loss == pytest.approx(sum(losses), rel=1e-6)


def test_gradients_and_apply_are_a_step(recipe: Any, plain_net: Exported) -> None:
    features, targets = rows(8)
    one = recipe(plain_net, SGD)
    whole, parts, worker = (begun(one, plain_net.weights) for _ in range(3))
    summed = whole.train(features, targets)
    loss, gradients = parts.gradients(features, targets)
    assert gradients.shape == (parts.gradient_size,)
    assert gradients.dtype == np.float32
    assert parts.updated(gradients).tobytes() == parts.weights().tobytes()
    assert loss * 8 == pytest.approx(summed, rel=1e-6)
    assert equal(parts.save(), whole.save())
    worker.take(parts.weights())
    assert all(np.array_equal(worker.save()[n], parts.save()[n]) for n in parts.trained)


def test_what_no_gradient_changes_is_named(recipe: Any, full_net: Exported) -> None:
    program = begun(recipe(full_net), full_net.weights)
    assert set(program.untrained) <= set(program.save()) - program.trained
    assert sum(program.untrained.values()) == 16  # mean and variance of 8 units


def test_a_new_optimizer_keeps_weights_and_rate(recipe: Any, full_net: Exported) -> None:
    program = begun(recipe(full_net), full_net.weights)
    program.train(*rows())
    state = program.save()
    fresh = program.with_new_optimizer(state, recipe(full_net))
    changed = {name for name in state if not np.array_equal(state[name], fresh[name])}
    assert changed
    assert all(name.startswith("optimizer/") for name in changed)
    assert LEARNING_RATE not in changed


def test_a_state_is_taken_over(recipe: Any, full_net: Exported) -> None:
    program = begun(recipe(full_net), full_net.weights)
    program.train(*rows())
    state = program.save()
    other = recipe(full_net, SGD)
    begun_anew = BACKEND.program(other).taken_over(state, other)
    assert begun_anew[LEARNING_RATE] == np.float32(0.1)
    assert "optimizer/iteration" in begun_anew
    assert not any("exp_avg" in name for name in begun_anew)
    faster = recipe(full_net, f"{LOGITS},optimizer='Adam(lr=0.5)'")
    kept = program.taken_over(state, faster)
    assert kept[LEARNING_RATE] == np.float32(0.5)
    assert equal(kept | {LEARNING_RATE: state[LEARNING_RATE]}, state)


def test_keys_tell_which_configurations_share_a_program(recipe: Any, full_net: Exported) -> None:
    one = recipe(full_net)
    rate = recipe(full_net, f"{LOGITS},optimizer='Adam(lr=0.02)'")
    assert BACKEND.program_key(one) == BACKEND.program_key(rate)
    assert BACKEND.program_key(one) != BACKEND.program_key(recipe(full_net, SGD))


def test_replicas_draw_numbers_of_their_own(recipe: Any, full_net: Exported) -> None:
    one = recipe(full_net)
    state = begun(one, full_net.weights).save()
    found = []
    for place in (0, 1, 1, 2):
        program = begun(one, full_net.weights)
        program.load(of_replica(state, place))
        program.train(*rows())
        found.append(program.save()["weights/0.weight"].tobytes())
    assert found[1] == found[2]
    assert len(set(found)) == 3


def test_a_batch_of_one_row_changes_no_averages(recipe: Any, full_net: Exported) -> None:
    program = begun(recipe(full_net), full_net.weights)
    before = program.save()
    assert np.isfinite(program.train(*rows(1)))
    after = program.save()
    for name in ("weights/1.running_mean", "weights/1.running_var"):
        np.testing.assert_array_equal(before[name], after[name])
    assert all(np.isfinite(array).all() for array in after.values())
    # Plain PyTorch refuses such a batch in torch.nn.functional.
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        copy.deepcopy(full_net.module)(torch.zeros(1, FEATURES))


def test_schedules_clipping_and_freezing(recipe: Any, plain_net: Exported) -> None:
    text = (
        f"{LOGITS},optimizer='SGD(learning_rate=ExponentialDecay(0.1, 10, decay_rate=0.5),"
        "global_clipnorm=0.5)',freeze=['0']"
    )
    one = recipe(plain_net, text)
    program = begun(one, plain_net.weights)
    assert LEARNING_RATE not in program.save()
    module = copy.deepcopy(plain_net.module)
    module[0].requires_grad_(False)
    weights = list(module[2].parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1)
    features, ids = rows()
    for step, start in enumerate(range(0, 24, 8)):
        optimizer.param_groups[0]["lr"] = 0.1 * 0.5 ** (step / 10)
        optimizer.zero_grad()
        outputs = module(torch.from_numpy(features[start : start + 8]))
        wanted = torch.from_numpy(ids[start : start + 8]).long()
        torch.nn.functional.cross_entropy(outputs, wanted).backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.5)
        optimizer.step()
    program.train(features, ids)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(program.save()[f"weights/{name}"], tensor.numpy())
    with pytest.raises(InvalidArchitecture, match="fits no module"):
        BACKEND.program(recipe(plain_net, f"{SGD},freeze=['x*']"))


def test_weights_of_rows_and_penalties(recipe: Any, plain_net: Exported) -> None:
    one = recipe(plain_net, f"{SGD},l2=0.01", "batch_size=24,class_weight={0: 2.0, 1: 0.5}")
    features, ids = rows()
    program = begun(one, plain_net.weights)
    loss, _ = program.gradients(features, ids)
    module = plain_net.module
    outputs = module(torch.from_numpy(features))
    each = torch.nn.functional.cross_entropy(
        outputs, torch.from_numpy(ids).long(), reduction="none"
    )
    weights = torch.tensor([2.0, 0.5, 1.0])[torch.from_numpy(ids).long()]
    kernels = sum(0.01 * module[place].weight.square().sum() for place in (0, 2))
    assert loss == pytest.approx(float(((each * weights).mean() + kernels).detach()), rel=1e-6)


def test_a_rate_of_dropout_replaces_that_of_the_module(recipe: Any, full_net: Exported) -> None:
    without = recipe(full_net, f"{SGD},dropout=0.0")
    first, second = (begun(without, full_net.weights, seed) for seed in (1, 2))
    assert first.train(*rows()) == second.train(*rows())
    with pytest.raises(InvalidArchitecture, match="without dropout"):
        BACKEND.program(replace(without, architecture=_without_dropout(full_net)))


def _without_dropout(net: Exported) -> Any:
    found = copy.deepcopy(net.architecture)
    for node in found["train"]["graph"]["nodes"]:
        if "dropout" in node["target"]:
            node["target"] = "torch.ops.aten.relu.default"
            del node["inputs"][1:]
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{LOGITS},optimizer='Lion(lr=0.1)'", "got Lion for a PyTorch model"),
        ("loss='circle',optimizer='SGD'", "got Circle for a PyTorch model"),
        (f"{SGD},dtype_policy='mixed_float16'", "dtype_policy"),
        (f"{SGD},loss_per_member=True", "loss_per_member"),
        (
            f"{LOGITS},optimizer='SGD(gradient_accumulation_steps=2)'",
            "gradient_accumulation_steps",
        ),
    ],
)
def test_what_torch_lacks_is_refused(
    recipe: Any, plain_net: Exported, text: str, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        BACKEND.program(recipe(plain_net, text))


def test_sizes_are_measured_and_bounded(plain_net: Exported) -> None:
    config = plain_net.architecture
    size = BACKEND.check_size(config, LIMITS, None)
    facts = BACKEND.facts(config, LIMITS, None, plain_net.weights)
    assert size.parameters == facts.parameters == FEATURES * 8 + 8 + 8 * CLASSES + CLASSES
    assert facts.row_bytes == size.row_bytes == 4 * (8 + 8 + CLASSES)
    assert facts.multiply_adds == FEATURES * 8 + 8 * CLASSES
    assert (facts.input_shapes, facts.output_shapes) == (((FEATURES,),), ((CLASSES,),))
    with pytest.raises(InvalidArchitecture, match="parameters"):
        BACKEND.check_size(config, replace(LIMITS, parameters=10), None)
    with pytest.raises(InvalidArchitecture, match="numbers for one row"):
        BACKEND.check_size(config, replace(LIMITS, elements=7), None)
    with pytest.raises(CerebroError, match="may need"):
        BACKEND.check_size(config, LIMITS, 1)


def test_arrays_are_exported(recipe: Any, full_net: Exported, tmp_path: Any) -> None:
    import io

    from safetensors.torch import load

    one = recipe(full_net)
    program = begun(one, full_net.weights)
    program.train(*rows())
    state = program.save()
    file = BACKEND.export(one, state, Format.NPZ, {"facts": "{}"}, lambda: None)
    with np.load(io.BytesIO(file), allow_pickle=False) as arrays:
        assert str(arrays["facts"]) == "{}"
        names = [name for name in arrays.files if name.startswith("weights/")]
        assert all(np.array_equal(arrays[name], state[name]) for name in names)
    module = mlp()
    module.load_state_dict(load(BACKEND.export(one, state, "safetensors", {}, lambda: None)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(module[0].weight.detach().numpy(), state["weights/0.weight"])


@pytest.mark.parametrize("build", [mlp, cnn, Lstm])
def test_programs_are_exported(recipe: Any, build: Any) -> None:
    import io

    from cerebro_db.configs.aten import archive

    shapes = {mlp: (FEATURES,), cnn: (1, 8, 8), Lstm: (5,)}
    whole = build is Lstm
    inputs = torch.zeros((2, *shapes[build]), dtype=torch.long if whole else torch.float32)
    net = Exported(build().train(), inputs)
    one = recipe(net)
    program = begun(one, net.weights)
    features, ids = rows(24, shapes[build])
    features = (
        np.abs(features).clip(0, 9).astype(np.int64).astype(np.float32) if whole else features
    )
    program.train(features, ids)
    state = program.save()
    file = BACKEND.export(one, state, "pt2", {}, lambda: None)  # type: ignore[arg-type]
    loaded = torch.export.load(io.BytesIO(file)).module()
    with torch.no_grad():
        found = loaded(torch.from_numpy(features).to(inputs.dtype)).numpy()
    scorer = BACKEND.scorer(one)
    scorer.load(state, one.compile_params)
    np.testing.assert_allclose(found, scorer.predict(features)[0], rtol=1e-6, atol=1e-7)
    text, weights = archive.read(file, LIMITS)
    again = {"parameters", "buffers", "inputs", "outputs", "constants", "shared"}
    assert all(json.loads(text)[name] == net.architecture[name] for name in again)
    model = BACKEND.program(one).initial_state(one, 7, weights)
    assert all(np.array_equal(model[name], state[name]) for name in state if "weights/" in name)


class Depth(nn.Module):
    """A net whose rows are left out at random while it trains, decided in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(FEATURES, 4), nn.Linear(4, CLASSES)

    def forward(self, inputs: Any) -> Any:
        found = self.first(inputs)
        if self.training:
            found = found * torch.empty(found.shape[0], 1).bernoulli_(0.5) + torch.tensor(
                [1.0, 2.0, 3.0, 4.0]
            )
        else:
            found = found + torch.tensor([0.0, 0.0, 1.0, 1.0])
        return self.head(found)


def test_a_module_that_is_another_one_in_evaluation(recipe: Any) -> None:
    from cerebro_db.configs.aten import archive

    module, inputs = Depth(), torch.zeros(2, FEATURES)
    with pytest.raises(InvalidArchitecture, match="draws random numbers in evaluation"):
        Exported(module.train(), inputs)
    files = [exported(module.train(), inputs), exported(module.eval(), inputs)]
    text, weights = archive.read_both(files[0], files[1], LIMITS)
    net = SimpleNamespace(architecture=json.loads(text), text=text)
    one = recipe(net, SGD)
    program, scorer = begun(one, weights), BACKEND.scorer(one)
    features, ids = rows(8)
    scorer.set_weights(weights)
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(features)).numpy()
    np.testing.assert_array_equal(scorer.predict(features)[0], wanted)
    torch.manual_seed(7)
    outputs = module.train()(torch.from_numpy(features))
    loss = nn.functional.cross_entropy(outputs, torch.from_numpy(ids).long())
    assert program.gradients(features, ids)[0] == float(loss.detach())


def test_gpus_are_refused() -> None:
    with pytest.raises(RunFailed, match="use_gpus := true for a PyTorch model"):
        BACKEND.set_up(1, True)

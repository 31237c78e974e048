"""Nets train to the bits of the same loop in plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training.torch.nets import CLASSES, FEATURES, Exported, begun, mlp, rows, torch

from cerebro_db.training.backends.torch import BACKEND

nn = torch.nn
LOGITS = "loss='sparse_categorical_crossentropy(from_logits=True)',metrics=['accuracy']"
ROWS, BATCH, PART = 52, 8, 24


class Lstm(nn.Module):
    """An embedding, two layers of LSTM with dropout between them, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, dropout=0.1, num_layers=2)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, ids: Any) -> Any:
        return self.head(self.lstm(self.embedding(ids))[0][:, -1])


class Transformer(nn.Module):
    """Two layers of a Transformer, the mean over positions, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, rows: Any) -> Any:
        return self.head(self.encoder(rows).mean(1))


def cnn() -> Any:
    """A convolutional net with batch normalization and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(8 * 3 * 3, CLASSES),
    )  # fmt: skip


def eager(module: Any, optimizer: Any, features: Any, ids: np.ndarray, seed: int = 7) -> None:
    """Two epochs of plain PyTorch."""
    torch.manual_seed(seed)
    module.train()
    inputs, wanted = torch.from_numpy(features), torch.from_numpy(ids).long()
    for _ in range(2):
        for start in range(0, ROWS, BATCH):
            optimizer.zero_grad()
            outputs = module(inputs[start : start + BATCH])
            nn.functional.cross_entropy(outputs, wanted[start : start + BATCH]).backward()
            optimizer.step()


def ours(recipe: Any, net: Exported, features: np.ndarray, ids: np.ndarray) -> Any:
    """The state after two epochs, each in several calls."""
    program = begun(recipe, net.weights)
    for _ in range(2):
        for start in range(0, ROWS, PART):
            program.train(features[start : start + PART], ids[start : start + PART])
            program.load(program.save())
    return program.save()


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD(lr=0.1)": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD(lr=0.1,momentum=0.9,nesterov=True,weight_decay=0.01)": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam(lr=0.01,epsilon=1e-08)": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam(lr=0.01,epsilon=1e-08,amsgrad=True)": lambda p: torch.optim.Adam(
        p, lr=0.01, amsgrad=True
    ),
    "AdamW(lr=0.01,epsilon=1e-08,weight_decay=0.01)": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Nadam(lr=0.01,epsilon=1e-08)": lambda p: torch.optim.NAdam(p, lr=0.01),
    "Adamax(lr=0.01,epsilon=1e-08)": lambda p: torch.optim.Adamax(p, lr=0.01),
    "Adagrad(lr=0.01,epsilon=1e-10,initial_accumulator_value=0.0)": lambda p: torch.optim.Adagrad(
        p, lr=0.01
    ),
    "Adadelta(lr=0.5,rho=0.9,epsilon=1e-06)": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "RMSprop(lr=0.01,rho=0.99,epsilon=1e-08,momentum=0.5,centered=True)": lambda p: (
        torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True)
    ),
}


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_optimizers(recipe: Any, full_net: Exported, text: str) -> None:
    features, ids = rows(ROWS)
    module = copy.deepcopy(full_net.module)
    eager(module, OPTIMIZERS[text](module.parameters()), features, ids)
    found = ours(recipe(full_net, f"{LOGITS},optimizer='{text}'"), full_net, features, ids)
    assert_equal(module, found)


NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...], Any]] = {
    "mlp": (mlp, (FEATURES,), np.float32),
    "cnn": (cnn, (1, 8, 8), np.float32),
    "lstm": (Lstm, (5,), np.int64),
    "transformer": (Transformer, (5, 8), np.float32),
}


@pytest.mark.parametrize("name", NETS)
def test_nets(recipe: Any, name: str) -> None:
    build, shape, dtype = NETS[name]
    torch.manual_seed(3)
    net = Exported(build().train(), torch.from_numpy(np.zeros((2, *shape), dtype)))
    features, ids = rows(ROWS, shape)
    if dtype == np.int64:
        features = np.abs(features * 3).astype(np.int64).clip(0, 9).astype(np.float32)
    module = copy.deepcopy(net.module)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    eager(module, optimizer, features.astype(dtype), ids)
    one = recipe(net, f"{LOGITS},optimizer='Adam(lr=0.01,epsilon=1e-08)'")
    state = ours(one, net, features, ids)
    assert_equal(module, state)
    scorer = BACKEND.scorer(one)
    scorer.load(state, one.compile_params)
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(features.astype(dtype))).numpy()
    # In evaluation torch has a kernel of its own for Transformers.
    np.testing.assert_allclose(scorer.predict(features)[0], wanted, rtol=1e-5, atol=1e-6)


def assert_equal(module: Any, state: Any) -> None:
    """The weights of a module and of a state are the same bits."""
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(state[f"weights/{name}"], tensor.numpy(), err_msg=name)

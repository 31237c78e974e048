"""Strategies: texts of parameters and grids, valid ones that were changed and random ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fuzz.mutations import edited
from hypothesis import strategies as st

from cerebro_db.configs.functions.losses import LOSSES
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import OPTIMIZERS

COMPILE = [
    "loss='categorical_crossentropy',optimizer='Adam(lr=0.001)',metrics=['accuracy']",
    "optimizer=SGD(lr=.1,momentum=0.9,nesterov=True),loss='mse',l2=1e-4,dropout=0.5",
    "loss='Huber(delta=2.0)', optimizer='keras.optimizers.RMSprop()', metrics=['mae', 'AUC']",
    "loss=BinaryCrossentropy(from_logits=True),optimizer='adam',metrics=AUC(thresholds=[0.1,0.5])",
    "loss='mse',optimizer='Adafactor(relative_step=False)',metrics=['IoU(num_classes=3,"
    "target_class_ids=[0])', \"AUC(curve='PR', name='pr')\"]",
]
FIT = [
    "batch_size=32,epochs=1",
    "epochs=3, batch_size=16, shuffle=False, verbose=0, class_weight={0: 1.0, 1: 2.5}",
    "",
]
COMPILE_GRIDS = [
    "{'loss': ['mse', 'mae'], 'optimizer_params_list': [{'optimizer': ['Adam', 'SGD'], "
    "'lr': [0.1, 0.01]}], 'metrics': [['accuracy'], []]}",
    "{'loss': ['mse'], 'optimizer': ['Adam(lr=0.1)'], 'l1': [0.001, 0.1, 'log']}",
    "{'loss': ['mse'], 'optimizer_params_list': [{'lr': [0.9, 0.99, 'log_near_one'], "
    "'beta_1': [0.5, 0.9, 'linear']}, {'optimizer': ['SGD'], 'momentum': [0.0, 0.9]}]}",
]
FIT_GRIDS = [
    "{'batch_size': [16, 32], 'epochs': [1, 2]}",
    "{'batch_size': [8, 128, 'log'], 'epochs': [1], 'shuffle': [True, False]}",
]
AUTOML_PARAMS = [
    "R=9, eta=3, skip_last=0",
    "num_configs=20, num_iterations=5, algorithm=tpe",
    "population=8, interval=1, quantile=0.25, resample=0.5",
    "R=27, r=1, eta=3, num_configs=9, num_startup=4",
]
OBJECTIVES = ["val_accuracy", "val_auc(mode=max), loss", "'my metric', val_loss(mode='min')"]
EARLY_STOPPING = ["patience=3, min_delta=0.01, first_epoch=2", "median_after=5, target=0.95"]
CHANGES = ["lr=0.003, batch_size=64", "optimizer=SGD(0.1), momentum=0.9, l2=0.1, epochs=2"]

EXPRESSIONS = [
    "K.mean(K.square(y_true - y_pred), axis=-1)",
    "def rmse(y_true, y_pred):\n    import tensorflow.keras.backend as K\n    return K.sqrt(y_true - y_pred)",
    "d = abs(y_true - y_pred)\nwhere(d < 1.0, 0.5 * d**2, d - 0.5)",
    "x * sigmoid(1.702 * x[..., None, 0:2]) & (x != 3)",
    "concatenate([x, x], axis=[1]) @ cast(x, 'float32')",
]

PIECES = [
    "'", '"', "(", ")", "[", "]", "{", "}", ",", "=", ":", ".", "-", "--", "+", "*", "**", "#", "\\", "\n",
    "\t", "\r", "\0", "\x0c", "é", "ſ", "\u2028", "\ud800", " ", "lambda x: x", "x for x in y", "if a else b",
    "await a", "yield", "None", "True", "not", "and", "is", "in", "f''", "b''", "r''", "u''", "...", "1j",
    "0x10", "0b1", "1_000", "00", "1e999", "-1e999", "nan", "inf", "1e-999", "9" * 400, "9" * 20, "0.1",
    "__import__('os').system('true')", "__class__", "().__class__", "eval", "Adam", "Adam(", "lr=", "'lr'",
    "optimizer=", "loss=", "metrics=", "'linear'", "'log'", "[1, 2, 'log']", "[[[[", "]]]]", "{{", "((((",
    "a.b.c.d", "x" * 300, "x." * 40, "- " * 40, "['acc']" * 9, "callbacks=", "'epochs': [1, 99999], ",
    "%s", "{0}", "$1", "';--", "/*",
]  # fmt: skip
ALPHABET = "aAdmlrxf019._=,:'\"()[]{}+-* \n\\#é\0"


# What stands for a value, a name or a separator; one is put where another was.
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|[\w.]+|\S")
_TOKENS = sorted(
    {t for text in COMPILE + FIT + COMPILE_GRIDS + FIT_GRIDS for t in _TOKEN.findall(text)}
)
_OTHERS = [
    "0",
    "1",
    "-1",
    "0.5",
    "2147483647",
    "1e300",
    "None",
    "True",
    "[]",
    "''",
    "'x'",
    "'é'",
    "{}",
    "(1, 2)",
]


@st.composite
def retold(draw: st.DrawFn, texts: list[str]) -> str:
    """A text in which one or two tokens are others."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(0, 2))):
        if found := list(_TOKEN.finditer(text)):
            place = draw(st.sampled_from(found))
            token = draw(st.sampled_from(_TOKENS) | st.sampled_from(_OTHERS))
            text = text[: place.start()] + token + text[place.end() :]
    return text


_VALUES = [
    "0",
    "1",
    "2",
    "0.5",
    "-1",
    "1e-7",
    "1e300",
    "2147483648",
    "True",
    "None",
    "'sum'",
    "[0.1, 0.5]",
    "[]",
]
_PLAIN = [
    "loss='mse'",
    "loss=mae",
    "metrics=['acc']",
    "metrics=None",
    "l1=0.1",
    "dropout=0.5",
    "epochs=2",
]


@st.composite
def _call(draw: st.DrawFn, table: Mapping[str, Any]) -> str:
    """A name of a table with some of its arguments."""
    entry = table[draw(st.sampled_from(sorted(table)))]
    names = draw(
        st.lists(st.sampled_from([a.name for a in entry.arguments]), max_size=3, unique=True)
    )
    values = [draw(st.sampled_from(_VALUES)) for _ in names]
    return f"{entry.name}({','.join(map('='.join, zip(names, values, strict=True)))})"


@st.composite
def spelled(draw: st.DrawFn) -> str:
    """Compile parameters of known names, with values that may fit."""
    metrics = draw(st.lists(_call(METRICS), max_size=3))
    parts = [
        f"optimizer={draw(_call(OPTIMIZERS))}",
        f"loss={draw(_call(LOSSES))}",
        f"metrics=[{','.join(metrics)}]",
        *draw(st.lists(st.sampled_from(_PLAIN), max_size=1)),
    ]
    return ",".join(draw(st.permutations(parts)))


def changed(texts: list[str]) -> st.SearchStrategy[str]:
    """One of these texts, changed; or pieces in a row; or anything."""
    return (
        retold(texts)
        | retold(texts)
        | retold(texts)
        | st.sampled_from(texts).flatmap(lambda text: edited(text, PIECES))
        | st.lists(st.sampled_from([*PIECES, *texts]), max_size=8).map("".join)
        | st.text(ALPHABET, max_size=80)
        | st.text(max_size=40)
    )

"""Changes of single parameters of a configuration."""

from __future__ import annotations

import pytest

from cerebro_db.configs.grids.parameters import changed, parse_compile_params, parse_fit_params
from cerebro_db.errors import InvalidArgument

COMPILE = "optimizer='Adam(lr=0.01,beta_1=0.8)',metrics=['accuracy'],loss='mse'"
FIT = "epochs=1,batch_size=16"


@pytest.mark.parametrize(
    ("changes", "compile_params", "fit_params"),
    [
        ("", COMPILE, FIT),
        ("lr=0.1", "optimizer='Adam(beta_1=0.8,lr=0.1)',metrics=['accuracy'],loss='mse'", FIT),
        ("learning_rate=0.1, batch_size=64",
         "optimizer='Adam(beta_1=0.8,lr=0.1)',metrics=['accuracy'],loss='mse'",
         "epochs=1,batch_size=64"),
        ("optimizer=SGD(0.1), momentum=0.9", "optimizer='SGD(lr=0.1,momentum=0.9)',metrics=['accuracy'],"
         "loss='mse'", FIT),
        ("optimizer='SGD'", "optimizer='SGD',metrics=['accuracy'],loss='mse'", FIT),
        ("loss='mae', l2=0.1, epochs=2", "optimizer='Adam(lr=0.01,beta_1=0.8)',metrics=['accuracy'],"
         "loss='mae',l2=0.1", "epochs=2,batch_size=16"),
    ],
)  # fmt: skip
def test_changes(changes: str, compile_params: str, fit_params: str) -> None:
    found = changed(COMPILE, FIT, changes)
    assert parse_compile_params(found[0]) == parse_compile_params(compile_params)
    assert parse_fit_params(found[1]) == parse_fit_params(fit_params)


def test_arguments_by_place_are_replaced_too() -> None:
    found, _ = changed("optimizer='Adam(0.01)',loss='mse'", "", "lr=0.5")
    assert parse_compile_params(found).optimizer.arguments == (("learning_rate", 0.5),)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            "batch_sise=3",
            "changes: got the unknown parameter 'batch_sise'. Did you mean 'batch_size'",
        ),
        ("momentum=0.9", "changes: got the unknown parameter 'momentum'"),
        ("lr=-1", "learning_rate=-1"),
        ("lr='fast'", "fast"),
        ("batch_size=0", "batch_size=0"),
        ("optimizer=Adagrda", "Did you mean 'Adagrad'"),
        ("0.1", "without a name"),
        ("lr=0.1 batch_size=3", "changes: got"),
        ("lr=__import__('os').system('true')", "changes"),
    ],
)
def test_wrong_changes(changes: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        changed(COMPILE, FIT, changes)
    assert told in caught.value.message
    assert caught.value.hint

"""What parameters ask for is bounded: combinations, draws, texts, metrics and their matrices."""

from __future__ import annotations

import time

import pytest
from pace import stretched

from cerebro_db.configs.functions.metrics import parse_metrics
from cerebro_db.configs.grids import model_selection
from cerebro_db.configs.grids.grid import parse_compile_grid, parse_fit_grid
from cerebro_db.configs.grids.model_selection import generate
from cerebro_db.configs.grids.parameters import parse_compile_params
from cerebro_db.errors import InvalidArgument

COMPILE = "{'loss': ['mse', 'mae'], 'optimizer': ['Adam(lr=0.1)']}"
ONE = "{'loss': ['mse'], 'optimizer': ['Adam(lr=0.1)']}"
FIT = "{'epochs': [1, 2]}"


def test_combinations_beyond_what_a_number_holds() -> None:
    lists = ", ".join(
        f"{{'optimizer': ['Adam'], 'lr': {[0.1] * 50}, 'epsilon': {[0.1] * 50}}}" for _ in range(3)
    )
    grid = f"{{'loss': ['mse'], 'optimizer_params_list': [{lists}]}}"
    with pytest.raises(InvalidArgument, match="make 15000000 configurations; at most 100000"):
        generate([1], grid, f"{{'batch_size': {[8] * 1000}, 'epochs': {[1] * 2}}}")
    names = ", ".join(f"'callbacks{number}': [1, 2]" for number in range(2000))
    with pytest.raises(InvalidArgument, match="unknown parameter 'callbacks0'"):
        parse_fit_grid(f"{{{names}}}")


def test_a_grid_without_a_range_is_not_searched_for_more_than_it_has() -> None:
    with pytest.raises(InvalidArgument, match="got 9; only 8 different configurations"):
        generate([1, 2], COMPILE, FIT, "random", 9, 0)
    assert len(generate([1, 2], COMPILE, FIT, "random", 8, 0)) == 8


def test_draws_in_vain_end() -> None:
    started = time.monotonic()
    with pytest.raises(InvalidArgument, match="got 100000; only 3 different configurations"):
        generate([1], ONE, "{'epochs': [1, 3, 'linear']}", "random", 100_000, 0)
    assert time.monotonic() - started < stretched(30)


def test_the_text_of_all_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(len(r.compile_params) for r in generate([1], COMPILE, "{'epochs': [1]}"))
    monkeypatch.setattr(model_selection, "MAX_CHARACTERS", size)
    assert len(generate([1], COMPILE, FIT)) == 4
    monkeypatch.setattr(model_selection, "MAX_CHARACTERS", size - 1)
    for search in ([], ["random", 4, 0]):
        with pytest.raises(InvalidArgument, match=f"more than the {size - 1} characters"):
            generate([1], COMPILE, FIT, *search)


def test_a_search_can_be_cancelled() -> None:
    class CancelledError(Exception):
        pass

    def cancel() -> None:
        raise CancelledError

    for search in ([], ["random", 2, 0]):
        with pytest.raises(CancelledError):
            generate([1], COMPILE, FIT, *search, **{"tick": cancel})


def test_metrics() -> None:
    many = [f"AUC(num_thresholds={number})" for number in range(2, 102)]
    assert len(parse_metrics(many)) == 100
    with pytest.raises(InvalidArgument, match="got 101 metrics; at most 100"):
        parse_metrics([*many, "mae"])
    for text in ("IoU(num_classes=4097,target_class_ids=[0])", "AUC(num_labels=1001)",
                 "MeanIoU(num_classes=2147483647)", "AUC(num_thresholds=100001)"):  # fmt: skip
        with pytest.raises(InvalidArgument, match="it must be a whole number from"):
            parse_metrics([text])


@pytest.mark.parametrize(
    "text",
    [
        f"optimizer='{'x' * 60_000}',loss='mse'",
        f"optimizer='SGD',loss='{'é' * 60_000}'",
        f"{'x' * 60_000}=1",
        f"optimizer={'x.' * 30}y,loss='mse'",
        f"optimizer='SGD',loss='mse',metrics={['mae'] * 9_000}",
        f"optimizer='SGD',loss='mse',l1={[1] * 9_000}",
        f"optimizer=SGD({'x' * 60_000}=1),loss='mse'",
        f"optimizer='SGD',loss='mse',metrics=[AUC(name='{'n' * 60_000}')]",
    ],
    ids=range(8),
)
def test_messages_are_short(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_compile_params(text)
    assert len(caught.value.message) < 1000


def test_messages_about_grids_are_short() -> None:
    for text in (f"{{'loss': {['mse'] * 5_000 + [1]}, 'x': 1}}", f"{{'{'k' * 60_000}': [1]}}",
                 f"{{'optimizer_params_list': {{'a': {[1] * 9_000}}}}}"):  # fmt: skip
        with pytest.raises(InvalidArgument) as caught:
            parse_compile_grid(text)
        assert len(caught.value.message) < 1000

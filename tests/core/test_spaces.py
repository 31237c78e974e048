"""Spaces of searches: what architectures have no layers for, kept with the run."""

from __future__ import annotations

from cerebro_db.core.spec import Space
from cerebro_db.decide.search.space import Explorer
from cerebro_db.wire import decode, encode

COMPILE = (
    "{'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.1, 0.2]}], 'dropout': [0.1, 0.5]}"
)
SPACE = Space((1, 2), COMPILE, "{'batch_size': [4]}", {1: ("dropout",)})


def test_what_is_left_out_is_kept() -> None:
    assert decode(Space, encode(SPACE), "space") == SPACE
    plain = Space(SPACE.model_ids, COMPILE, SPACE.fit_params_grid)
    assert "left_out" not in encode(plain)  # as searches of earlier versions have it
    assert decode(Space, encode(plain), "space") == plain


def test_one_dimension_is_left_out_of_one_architecture() -> None:
    explorer = Explorer(SPACE)
    assert explorer.size == 2 + 4
    texts = [explorer.text(one) for one in explorer.combinations()]
    assert ["dropout" in one.compile_params for one in texts] == [False] * 2 + [True] * 4
    for text in texts:
        place = explorer.place(text)
        assert place is not None
        assert ("dropout" in place) == (text.model_id == 2)
        assert explorer.has(place)

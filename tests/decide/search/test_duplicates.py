"""What counts as one configuration in a search goes by the framework of its model."""

from __future__ import annotations

from cerebro_db.configs.frameworks import frameworks
from cerebro_db.core.spec import Space
from cerebro_db.decide.search.sampling import Distinct, Enumeration

# The default rate of Keras is 0.01; that of torch is another one.
SPACE = Space(
    (1, 2),
    "{'loss': ['mse'], 'metrics': [['mse']], "
    "'optimizer_params_list': [{'optimizer': ['SGD']}, {'optimizer': ['SGD'], 'lr': [0.01]}]}",
    "{'batch_size': [8]}",
)


def test_defaults_are_those_of_the_framework() -> None:
    known = frameworks()
    proposals = Distinct(
        Enumeration, SPACE, lambda row: None, {1: known["tensorflow"], 2: known["torch"]}
    )
    found = [proposals.propose(number) for number in range(1, 5)]
    assert [one and one[1].model_id for one in found] == [1, 2, 2, None]

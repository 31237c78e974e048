"""Requests: the arguments of each SQL function, declared once."""

from cerebro_db.requests import (
    administration,
    automl,
    calibrating,
    ensembling,
    explaining,
    fitting,
    jobs,
    models,
    packing,
    predicting,
    registry,
    searching,
)
from cerebro_db.requests.declared import FUNCTIONS, Function, Request

__all__ = (
    "FUNCTIONS", "Function", "Request", "administration", "automl", "calibrating", "ensembling", "explaining", "fitting",
    "jobs", "models", "packing", "predicting", "registry", "searching",
)  # fmt: skip

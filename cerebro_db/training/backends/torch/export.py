"""Trained models as files that other programs read: raw arrays, and what ``load_state_dict`` takes."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cerebro_db.configs.aten.writing import written
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidData, MissingLibrary
from cerebro_db.training import exported_files
from cerebro_db.training.backends.torch.nets import net_of
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.state import WEIGHTS, State, check_fits, of_model

Documents = Mapping[str, str]


def export(
    recipe: Recipe,
    state: State,
    wanted: Format,
    documents: Mapping[str, str],
    tick: Callable[[], None],
) -> bytes:
    """A file of a model; the arguments are those of ``Backend.export``.

    Raises:
        MissingLibrary: the virtual environment lacks what the format needs.
        InvalidData: PyTorch models have no such format, or the file is too large.
    """
    write = _WRITERS.get(str(wanted))
    if write is None:
        raise InvalidData(
            f"format: got {shown(str(wanted))} for a PyTorch model; allowed: {', '.join(map(repr, _WRITERS))}"
        )
    net = net_of(recipe)
    model = {name: array for name, array in of_model(state).items() if name.startswith(WEIGHTS)}
    check_fits(model, net.described())
    tick()
    arrays = {
        name: np.ascontiguousarray(model[name]).reshape(model[name].shape)
        for name in net.described()
    }
    file = write(recipe, arrays, documents)
    exported_files.check_size(file, wanted)
    return file


def _npz_file(recipe: Recipe, model: State, documents: Documents) -> bytes:
    arrays: dict[str, Any] = {name: np.array(text) for name, text in documents.items()}
    arrays |= model
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _safetensors_file(recipe: Recipe, model: State, documents: Documents) -> bytes:
    """The arrays under the names of a module's ``state_dict``; the documents are its metadata."""
    if importlib.util.find_spec("safetensors") is None:
        raise MissingLibrary(
            "format: got 'safetensors', for which the virtual environment lacks safetensors",
            hint='install the extra "torch": pip install "cerebro-db[torch]"',
        )
    from safetensors.numpy import save

    held = {
        one["name"] for one in recipe.architecture["buffers"] if not one.get("persistent", True)
    }
    named = {name.removeprefix(WEIGHTS): array for name, array in model.items()}
    kept = {name: array for name, array in named.items() if name not in held}
    for alias, name in (recipe.architecture.get("shared") or {}).items():
        if name in kept:
            kept[alias] = kept[name].copy()
    found: bytes = save(kept, {"format": "pt", **documents})
    return found


def _program_file(recipe: Recipe, model: State, documents: Documents) -> bytes:
    """The program in evaluation, as ``torch.export.load`` reads it."""
    arrays = {name.removeprefix(WEIGHTS): array.tobytes() for name, array in model.items()}
    return written(recipe.architecture, arrays)


_WRITERS: dict[str, Callable[[Recipe, State, Documents], bytes]] = {
    "npz": _npz_file,
    "pt2": _program_file,
    "safetensors": _safetensors_file,
}

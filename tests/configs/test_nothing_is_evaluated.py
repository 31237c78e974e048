"""No text becomes code: neither the package nor what the server runs has a way to evaluate one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for folder in ("cerebro_db", "udfs", "sql") for path in (ROOT / folder).rglob("*.py")
)

MODULES = {
    "cPickle", "cloudpickle", "code", "codeop", "copyreg", "dill", "h5py", "imp", "joblib",
    "jsonpickle", "marshal", "pickle", "runpy", "shelve", "torch", "yaml",
}  # fmt: skip
BUILTINS = {"__import__", "compile", "eval", "exec", "execfile"}
# Calls of methods and functions of other modules, by their last name.
ATTRIBUTES = {
    "clone_model", "enable_unsafe_deserialization", "from_function", "func_load", "get_file",
    "import_module", "literal_eval", "load_model", "load_weights", "model_from_json", "popen",
    "run_module", "spec_from_file_location", "system", "unsafe_load",
}  # fmt: skip
FULL_NAMES = {"np.load", "numpy.load", "torch.jit.load", "torch.load"} | {
    f"builtins.{name}" for name in BUILTINS
}
KEYWORDS = {"allow_pickle", "safe_mode", "shell"}
# What has the name of something that evaluates, and why it does not.
ALLOWED = {
    "cerebro_db/server/models.py": ["load_model"],  # our own function
    "cerebro_db/client/database.py": ["load_model"],  # the client's method of that name
    # In the process of a user who asks for the Keras model of a file that we have made for him.
    "cerebro_db/client/model.py": ["torch", "load_model"],
    "cerebro_db/training/backends/tensorflow/export.py": [
        "from_function"
    ],  # of tf2onnx: a graph as ONNX
    # Data sets only, in a child process; Keras reads a file of our own making.
    "cerebro_db/training/backends/tensorflow/keras_file.py": ["h5py", "load_weights"],
    # In the process of a user who hands in a module of PyTorch.
    "cerebro_db/client/exporting.py": ["torch", "torch"],
    # An installed package that an administrator has registered.
    "cerebro_db/training/functions.py": ["import_module"],
    # Literals only, of a function's text that a superuser has installed.
    "cerebro_db/install/places.py": ["literal_eval"],
    # Modules of the package itself: an entry by its name, and all of them before processes are forked.
    "cerebro_db/trainers/child.py": ["import_module"],
    "cerebro_db/trainers/keeper.py": ["import_module"],
    # Modules and packages that lie in the package's own folders, by the names of their files.
    "cerebro_db/configs/frameworks/__init__.py": ["import_module"],
    "cerebro_db/training/backends/__init__.py": ["import_module"],
}


# It computes with torch, and loads nothing by it: what a user hands in is read as JSON and raw numbers.
COMPUTES_WITH_TORCH = "cerebro_db/training/backends/torch/"


def findings(tree: ast.AST) -> Iterator[str]:
    """What would evaluate something, or switch a protection off."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            imported = {node.module or ""} | {alias.name for alias in node.names}
            yield from sorted({n for n in imported if n.partition(".")[0] in MODULES | ATTRIBUTES})
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute):
            if node.attr in ATTRIBUTES or ast.unparse(node) in FULL_NAMES:
                yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
            yield f"{node.arg}="


def parsed(path: Path) -> ast.AST:
    # Bodies of PL/Python functions end in "return": the server makes functions of them.
    lines = path.read_text(encoding="utf-8").splitlines()
    return ast.parse("def body():\n" + "\n".join(f" {line}" for line in lines) + "\n pass")


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_nothing_is_evaluated(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    found = list(findings(parsed(path)))
    if name.startswith(COMPUTES_WITH_TORCH):
        found = [one for one in found if one.partition(".")[0] != "torch"]
    assert found == ALLOWED.get(name, [])


def test_every_part_was_read() -> None:
    read = {path.relative_to(ROOT).parts[0] for path in SOURCES}
    assert read == {"cerebro_db", "udfs", "sql"}
    assert ROOT / "cerebro_db/training/backends/tensorflow/models.py" in SOURCES


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pickle", "pickle"),
        ("import yaml.loader as y", "yaml.loader"),
        ("from marshal import loads", "marshal"),
        ("from importlib import import_module", "import_module"),
        ("run = eval", "eval"),
        ("builtins.exec('1')", "exec"),
        ("re.compile(text)", None),
        ("__import__('os')", "__import__"),
        ("importlib.import_module(name)", "import_module"),
        ("keras.saving.load_model(path)", "load_model"),
        ("np.load(file)", "load"),
        ("torch.load(file)", "load"),
        ("read(file, allow_pickle=True)", "allow_pickle="),
        ("deserialize(config, safe_mode=False)", "safe_mode="),
        ("subprocess.run(text, shell=True)", "shell="),
        ("os.system(text)", "system"),
    ],
)
def test_what_would_be_found(text: str, found: str | None) -> None:
    assert list(findings(ast.parse(text))) == ([] if found is None else [found])

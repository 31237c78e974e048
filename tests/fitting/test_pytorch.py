"""PyTorch models in the database: loaded, trained beside Keras models, predicted, exported, to the same bits."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg2
import pytest

from tests.docs.pages import DOCS, fenced
from tests.fitting.conftest import ADAM, CLASSES, FEATURES, PLAIN, select

torch = pytest.importorskip("torch")

OF_TORCH = (
    "loss='cross_entropy',optimizer='torch.optim.SGD(lr=0.05,momentum=0.9)',metrics=['accuracy']"
)
NETS = "nets"


def module() -> Any:
    """A net with batch normalisation and dropout that ends in logits."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(8, CLASSES),
    )


def saved(net: Any) -> bytes:
    """The file that ``torch.export.save`` writes of a module."""
    batch, file = torch.export.Dim("batch"), io.BytesIO()
    rows = torch.zeros(2, FEATURES)
    torch.export.save(torch.export.export(net, (rows,), dynamic_shapes=({0: batch},)), file)
    return file.getvalue()


def with_weights(net: Any, weights: bytes) -> Any:
    """The module in eval mode with weights: parameters, then buffers."""
    flat = torch.from_numpy(np.frombuffer(weights, np.float32).copy())
    with torch.no_grad():
        for tensor in [*net.parameters(), *net.buffers()]:
            tensor.copy_(flat[: tensor.numel()].reshape(tensor.shape).to(tensor.dtype))
            flat = flat[tensor.numel() :]
    return net.eval()


@pytest.fixture(scope="module", autouse=True)
def loaded(bench: Any) -> None:
    """1 a Keras model, 2 a PyTorch model of a file, 3 the same from the client; configurations of 1 and 2."""
    import cerebro_db

    bench.run(f"SELECT cerebro_load_model('{NETS}', %s)", (PLAIN,))
    bench.run(
        f"SELECT cerebro_load_model_file('{NETS}', %s)",
        (psycopg2.Binary(saved(module().train())),),
    )
    with cerebro_db.connect(bench.dsn) as db:
        assert db.load_model(NETS, module(), example_inputs=(torch.zeros(1, FEATURES),)) == 3
    for models, params in (([1], ADAM), ([2, 3], OF_TORCH)):
        select(bench, f"mixed_{models[0]}", models, [params], ["batch_size=8"], models=NETS)
    bench.run("CREATE TABLE mixed AS SELECT * FROM mixed_1")
    bench.run(
        "INSERT INTO mixed SELECT mst_key + 1, model_id, compile_params, fit_params FROM mixed_2"
    )
    bench.run("CREATE TABLE mixed_summary AS SELECT * FROM mixed_1_summary")


@pytest.fixture(scope="module")
def trained(bench: Any) -> int:
    """A run of three configurations of two frameworks."""
    return int(
        bench.value(
            "SELECT cerebro_fit_multiple('packed', 'mixed_out', 'mixed', 2, validation_table := 'val', "
            "num_workers := 2)"
        )
    )


def test_an_architecture_is_json_and_begins_with_its_weights(bench: Any) -> None:
    rows = bench.fetch(
        f"SELECT model_arch ->> 'framework', octet_length(model_weights), model_arch -> 'eval' IS NULL FROM {NETS} "
        "ORDER BY model_id"
    )
    size = 4 * sum(one.numel() for one in module().state_dict().values())
    assert [row[:2] for row in rows] == [(None, None), ("torch", size), ("torch", size)]


def test_a_run_has_models_of_both(bench: Any, trained: int) -> None:
    rows = bench.fetch(
        "SELECT mst_key, framework, training_metrics, training_loss FROM cerebro.leaderboard WHERE run_id = %s ORDER BY 1",
        (trained,),
    )
    assert [row[:2] for row in rows] == [(1, "tensorflow"), (2, "torch"), (3, "torch")]
    assert all(0.4 < metrics[0] <= 1 and 0 < loss < 1.2 for *_, metrics, loss in rows)
    facts = f"SELECT model_facts ->> 'framework' FROM {NETS} ORDER BY model_id"
    assert bench.column(facts) == ["tensorflow", "torch", "torch"]
    manifest = bench.value("SELECT manifest::json FROM cerebro.runs WHERE run_id = %s", (trained,))
    assert {"tensorflow", "keras", "torch"} <= set(manifest)


def test_predictions_are_those_of_eager_pytorch(
    bench: Any, trained: int, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    for mst_key in (2, 3):
        bench.run(
            "SELECT cerebro_predict('mixed_out', 'blobs', 'id', 'x', 'torch_probabilities', "
            f"pred_type := 'prob', mst_key := {mst_key}, replace := true)"
        )
        found = np.asarray(
            bench.column(
                "SELECT array_agg(prob ORDER BY class_value) FROM torch_probabilities GROUP BY id ORDER BY id"
            )
        )
        weights = bench.value("SELECT model_weights FROM mixed_out WHERE mst_key = %s", (mst_key,))
        net = with_weights(module(), bytes(weights))
        with torch.no_grad():
            wanted = net(torch.from_numpy(blobs[0])).softmax(1).numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_workers_do_not_change_the_bits(
    bench: Any, trained: int, weights: Callable[[str], dict[int, bytes]], fit: Callable[..., Any]
) -> None:
    first = weights("mixed_out")
    for workers in (1, 4):
        out, _ = fit(configs="mixed", validation_table="val", num_workers=workers)
        assert weights(out) == first


def test_a_run_goes_on_to_the_same_bits(
    bench: Any, trained: int, weights: Callable[[str], dict[int, bytes]], fit: Callable[..., Any]
) -> None:
    out, run_id = fit(configs="mixed", validation_table="val", num_workers=2, max_seconds=0.05)
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "paused"
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert weights(out) == weights("mixed_out")


def test_a_model_leaves_as_a_program_that_evaluates(
    bench: Any, trained: int, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    program = bytes(bench.value("SELECT cerebro_export('mixed_out', 2, 'pt2')"))
    loaded = torch.export.load(io.BytesIO(program)).module()
    weights = bench.value("SELECT model_weights FROM mixed_out WHERE mst_key = 2")
    net, rows = with_weights(module(), bytes(weights)), torch.from_numpy(blobs[0])
    with torch.no_grad():
        assert torch.equal(loaded(rows), net(rows))


def test_a_model_is_exported_as_arrays_alone(bench: Any, trained: int) -> None:
    file = bench.value("SELECT cerebro_export('mixed_out', 2, 'npz')")
    with np.load(io.BytesIO(bytes(file)), allow_pickle=False) as arrays:
        assert "weights/0.weight" in arrays.files
        assert json.loads(str(arrays["architecture"]))["framework"] == "torch"
    with pytest.raises(psycopg2.Error, match="format: got 'keras' for a model of PyTorch; allowed"):
        bench.run("SELECT cerebro_export('mixed_out', 2, 'keras')")


def test_the_client_hands_out_the_module(
    bench: Any, trained: int, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    import cerebro_db

    weights = bench.value("SELECT model_weights FROM mixed_out WHERE mst_key = 3")
    rows = torch.from_numpy(blobs[0])
    with cerebro_db.connect(bench.dsn) as db, torch.no_grad():
        model = db.run(trained).model(3)
        wanted = with_weights(module(), bytes(weights))(rows)
        assert torch.equal(model.torch()(rows), wanted)
        assert torch.equal(model.torch(module())(rows), wanted)


def test_a_model_goes_the_way_of_any_model(
    bench: Any, trained: int, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    """Evaluated on packed and on raw rows, registered, predicted by its alias, explained, reported."""
    board = "SELECT validation_loss FROM cerebro.leaderboard WHERE run_id = %s AND mst_key = 2"
    loss = bench.value(board, (trained,))
    for rows in ("val", "blobs_test"):
        bench.run(
            f"SELECT cerebro_evaluate('mixed_out', '{rows}', 'torch_scores', mst_key := 2, replace := true)"
        )
        assert bench.value("SELECT loss FROM torch_scores") == pytest.approx(loss, rel=1e-6)
    bench.run("SELECT cerebro_register_model(%s, 2, 'torch_blobs')", (trained,))
    bench.run("SELECT cerebro_set_alias('torch_blobs', 'champion', 1)")
    found = bench.value(
        "SELECT (cerebro_predict_row('model:torch_blobs@champion', x)).estimated FROM blobs WHERE id = 0"
    )
    weights = bench.value("SELECT model_weights FROM mixed_out WHERE mst_key = 2")
    with torch.no_grad():
        wanted = with_weights(module(), bytes(weights))(torch.from_numpy(blobs[0][:1])).softmax(1)
    np.testing.assert_allclose(found, wanted[0].numpy(), atol=1e-6)
    bench.run(
        "SELECT cerebro_explain('model:torch_blobs@champion', 'val', 'torch_explained', repeats := 1)"
    )
    assert bench.value("SELECT count(*) FROM torch_explained") == FEATURES
    with pytest.raises(psycopg2.Error, match="got a model of PyTorch; allowed: a model of TensorF"):
        bench.run("SELECT cerebro_calibrate('model:torch_blobs@champion', 'val')")
    bench.run("SELECT cerebro_drop_model('torch_blobs')")


def test_a_search_chooses_between_frameworks(bench: Any) -> None:
    grid = (
        "{'metrics': ['accuracy'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.01, 0.05]}], "
        "'model_params_list': [{'model_id': [1], 'loss': ['sparse_categorical_crossentropy']}, "
        "{'model_id': [2], 'loss': ['cross_entropy']}]}"
    )
    run_id = bench.value(
        "SELECT cerebro_search('packed', 'torch_found', %s, 'torch_trials', ARRAY[1, 2], %s, "
        "$${'batch_size': [8]}$$, 'random', 'num_configs=4, num_iterations=1', validation_table := 'val')",
        (NETS, grid),
    )
    board = "SELECT framework FROM cerebro.leaderboard WHERE run_id = %s AND status = 'finished' ORDER BY 1"
    assert bench.column(board, (run_id,)) == ["tensorflow"] * 2 + ["torch"] * 2


def test_equal_weights_have_equal_scores(bench: Any, fit: Callable[..., Any]) -> None:
    """A Keras and a PyTorch model of one run, which take no step that shows."""
    net = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES)
    )
    with torch.no_grad():
        arrays = [one.numpy().T if one.dim() == 2 else one.numpy() for one in net.parameters()]
    weights = b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)
    bench.run("SELECT cerebro_load_model('alike', %s, %s)", (PLAIN, psycopg2.Binary(weights)))
    bench.run("SELECT cerebro_load_model_file('alike', %s)", (psycopg2.Binary(saved(net)),))
    metrics = "metrics=['accuracy','top_k_categorical_accuracy(k=2)']"
    rate = "optimizer='SGD(lr=1e-12)'"
    for model_id, loss in ((1, "sparse_categorical_crossentropy"), (2, "cross_entropy")):
        params = f"loss='{loss}',{rate},{metrics}"
        select(bench, f"alike_{model_id}", [model_id], [params], ["batch_size=8"], "alike")
    bench.run("INSERT INTO alike_1 SELECT 2, model_id, compile_params, fit_params FROM alike_2")
    _, run_id = fit(configs="alike_1", epochs=1, validation_table="val")
    keras, pytorch = bench.fetch(
        "SELECT validation_loss, training_loss, validation_metrics, training_metrics "
        "FROM cerebro.leaderboard WHERE run_id = %s ORDER BY mst_key",
        (run_id,),
    )
    assert pytorch[:2] == pytest.approx(keras[:2], rel=1e-6)
    assert pytorch[2:] == tuple(pytest.approx(one, abs=1e-6) for one in keras[2:])


def test_what_a_framework_does_not_know_is_refused(bench: Any) -> None:
    for models, params, message in (
        (
            [1],
            OF_TORCH,
            "model_id 1: compile_params: got the optimizer 'torch.optim.SGD'; allowed are those of",
        ),
        ([2], OF_TORCH.replace("SGD", "LBFGS"), "it computes the loss several times"),
        ([2], OF_TORCH.replace("cross_entropy", "circle"), "the loss Circle for a PyTorch model"),
        ([2], OF_TORCH + ",freeze='7'", "no module with parameters has such a name"),
    ):
        with pytest.raises(psycopg2.Error, match=message):
            select(bench, "refused", models, [params], ["batch_size=8"], models=NETS)


def test_the_page_does_what_it_says(bench: Any) -> None:
    blocks = [one.text for one in fenced(DOCS / "pytorch.md") if one.language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        env={**os.environ, "DSN": bench.dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = bench.value(
        "SELECT count(DISTINCT id) FROM torch_predicted p JOIN torch_rows r USING (id)"
    )
    assert found == 600
    bench.run("SELECT cerebro_drop_outputs('torch_out')")


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (b"PK\x05\x06" + 18 * b"\0", "file"),
        (b"nonsense", "file"),
    ],
)
def test_files_that_are_no_models(bench: Any, net: bytes, message: str) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        bench.run(f"SELECT cerebro_load_model_file('{NETS}', %s)", (psycopg2.Binary(net),))

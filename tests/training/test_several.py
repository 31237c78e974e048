"""Models of several inputs and outputs: decoded, trained and scored as plain Keras does it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training import buffers
from cerebro_db.training.partitions import Partition, PartitionCache
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, Data, hop, order_of, weights_of

SHAPES = ((2, 2), (3,))
LOSSES = "loss=['categorical_crossentropy','mse'],loss_weights=[1.0,0.3]"
METRICS = "metrics={'kind': ['accuracy', 'AUC'], 'size': 'mae'}"
TEXT = f"{LOSSES},optimizer='Adam(lr=0.01)',{METRICS},l2=0.01"


def facts(weighted=False):
    return TargetFacts("class", CLASSES, (), weighted, (TargetFacts("float", 0, (2,)),))


@pytest.fixture(scope="module")
def architecture():
    import keras

    grid, row = keras.Input((2, 2), name="grid"), keras.Input((3,), name="row")
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(grid), row])
    hidden = keras.layers.Dense(6, activation="tanh")(joined)
    kind = keras.layers.Dense(CLASSES, activation="softmax", name="kind")(hidden)
    size = keras.layers.Dense(2, name="size")(keras.layers.Dropout(0.2)(hidden))
    return keras.Model([grid, row], [kind, size]).to_json()


def several(weighted=False, partitions=2):
    """Rows of seven numbers, those of both inputs side by side, and records of targets."""
    generator = np.random.default_rng(4)
    data = Data(partitions=partitions)
    records = np.zeros(data.targets.shape, facts(weighted).record)
    records["target"] = data.targets
    records["target_1"] = generator.normal(size=(*data.targets.shape, 2))
    if weighted:
        records["weight"] = generator.uniform(0, 3, data.targets.shape)
    data.targets = records
    data.features = generator.normal(size=(*records.shape, 7)).astype(np.float32)
    return data


def inputs_of(rows):
    return [rows[:, :4].reshape(-1, 2, 2), rows[:, 4:]]


def targets_of(stored):
    return [np.eye(CLASSES, dtype=np.float32)[stored["target"]], stored["target_1"]]


def by_keras(recipe, data, weighted):
    """Weights after ``model.fit`` of a model that Keras has compiled, over the same batches."""
    from cerebro_db.training.backends.tensorflow import models

    model = models.build(recipe.architecture, seed=7)
    penalty = models.Penalty()
    penalty.attach(model, recipe.compile_params)
    penalty.assign(recipe.compile_params)
    model.compile(
        models.make_optimizer(recipe.compile_params.optimizer),
        loss={"size": "mse", "kind": "categorical_crossentropy"},
        loss_weights={"size": 0.3, "kind": 1.0},
    )
    for partition in range(len(data.features)):
        stored = data.targets[partition]
        whole = Partition(data.buffers, data.features[partition], stored)
        order = order_of(5, 1, partition).whole(0, whole)
        model.fit(
            inputs_of(data.features[partition][order]),
            targets_of(stored[order]),
            sample_weight=stored["weight"][order] if weighted else None,
            batch_size=recipe.fit_params.batch_size,
            shuffle=False,
            verbose=0,
        )
    return [np.asarray(weight) for weight in model.get_weights()]


def hops(recipe, data, **options):
    state = None
    from cerebro_db.training.programs import Programs

    programs = Programs()
    for partition in range(len(data.features)):
        state, _ = hop(recipe, data, state, partition=partition, programs=programs, **options)
    return state


@pytest.mark.parametrize("weighted", [False, True])
def test_hops_equal_plain_keras_to_the_bit(recipe, architecture, weighted):
    given = recipe(architecture, TEXT, "batch_size=8", facts(weighted))
    data = several(weighted)
    theirs = by_keras(given, data, weighted)
    for cache_bytes in (0, 2**20):
        ours = weights_of(hops(given, data, cache_bytes=cache_bytes))
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_program_of_xla_gives_nearly_the_same(recipe, architecture):
    plain = architecture.replace('"rate": 0.2', '"rate": 0.0')
    given = recipe(plain, TEXT, "batch_size=8", facts(weighted=True), jit=True)
    data = several(weighted=True, partitions=1)
    pairs = zip(weights_of(hops(given, data)), by_keras(given, data, weighted=True), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_weight_decides(recipe, architecture):
    from cerebro_db.training.backends.tensorflow.program import Program

    data = several()
    one, other = (
        recipe(architecture, TEXT.replace("0.3", number), "batch_size=8", facts())
        for number in ("0.3", "0.6")
    )
    assert Program.key(one) != Program.key(other)
    pairs = zip(weights_of(hops(one, data)), weights_of(hops(other, data)), strict=True)
    assert not all(np.array_equal(a, b) for a, b in pairs)


def task(recipe, **more):
    targets = {"kind": "class", "num_classes": CLASSES, "shape": []}
    other = {"kind": "float", "num_classes": 0, "shape": [2]}
    return {
        "mst_key": 1,
        "architecture": json.dumps(recipe.architecture),
        "architecture_id": recipe.architecture_id,
        "compile_params": TEXT,
        "fit_params": "batch_size=8",
        "targets": targets | {"more": [other]},
        "inputs": [list(shape) for shape in SHAPES],
        "jit": False,
        "steps_per_call": 3,
        **more,
    }


@pytest.mark.parametrize("exact", [False, True])
def test_scores_equal_evaluate_of_keras(recipe, architecture, exact):
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.programs import Scorers
    from cerebro_db.training.scores.scan import Scan, combine, try_scores
    from cerebro_db.training.state import from_bytes
    from cerebro_db.training.tasks import Architectures, recipe_of, scan_of

    given, data, known, scorers = (
        recipe(architecture, TEXT, "batch_size=8", facts()), several(), Architectures(), Scorers(),
    )  # fmt: skip
    more = {"detail": "auc"} if exact else {}
    assert Program.key(recipe_of(task(given), known)) == Program.key(given)
    assert try_scores(json.dumps({"configurations": [task(given)]}), scorers, known) == "{}"
    state, partials = hops(given, data), []
    for partition in range(2):
        told = {"run_id": 1, "dataset": "test", "partition_key": partition}
        told["buffers"] = {"ids": [0, 1], "rows": list(data.buffers.rows)}
        scan = Scan(
            scan_of(json.dumps(task(given) | told), 1), scorers, PartitionCache(0), lambda: None
        )
        assert scan.inputs == SHAPES
        scan.add(json.dumps(task(given, **more)), state, known)
        for buffer_id, piece in enumerate(data.pieces(partition)):
            scan.feed(buffer_id, *piece)
        partials.append(json.loads(scan.finish(list))["partials"]["1"])
    told = {"configurations": [task(given, partials=partials, **more)]}
    ours = json.loads(combine(json.dumps(told), known))["1"]

    program = Program(given)
    program.prepare(given.compile_params, given.fit_params)
    program.load(from_bytes(state))
    model = program.model
    model.compile(
        loss=[models.make_loss(output.loss) for output in given.outputs],
        loss_weights=[1.0, 0.3],
        metrics=[["accuracy", "AUC"], ["mae"]],
    )
    rows, stored = np.concatenate(data.features), np.concatenate(data.targets)
    theirs = model.evaluate(
        inputs_of(rows), targets_of(stored), batch_size=len(rows), verbose=0, return_dict=True
    )
    names = ["kind_accuracy", "kind_auc", "size_mean_absolute_error", "kind_loss", "size_loss"]
    assert ours["names"] == names
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    found = dict(zip(names, ours["metrics"], strict=True))
    assert found["kind_accuracy"] == pytest.approx(theirs["kind_accuracy"])
    assert found["size_mean_absolute_error"] == pytest.approx(theirs["size_mae"], rel=1e-5)
    assert found["kind_loss"] == pytest.approx(theirs["kind_loss"], rel=1e-5)
    assert found["size_loss"] == pytest.approx(theirs["size_loss"], rel=1e-5)
    assert found["kind_auc"] == pytest.approx(theirs["kind_AUC"], abs=0.01 if exact else 1e-5)
    if exact:
        assert found["kind_auc"] != pytest.approx(theirs["kind_AUC"], abs=1e-9)


def test_predictions_of_each_output(recipe, architecture):
    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.programs import Scorers
    from cerebro_db.training.scores.prediction import Prediction
    from cerebro_db.training.state import from_bytes
    from cerebro_db.training.tasks import Architectures

    given, data = recipe(architecture, TEXT, "batch_size=8", facts()), several()
    state = hops(given, data)
    text = json.dumps(task(given, format="state", divisor=2.0, ranks=[2, 0]))
    prediction = Prediction(text, state, Scorers(), Architectures(), lambda: None)
    program = Program(given)
    program.load(from_bytes(state))
    rows = data.features[0][:5]
    kinds, sizes = (one.numpy() for one in program.model(inputs_of(rows), training=False))
    packed = b"".join(part.tobytes() for part in inputs_of(rows))
    sent = b"".join(
        buffers.to_wire(np.rint(row * 4).astype(np.uint8))
        for part in inputs_of(np.abs(rows))
        for row in part
    )
    classes, numbers = prediction.buffer(packed, 5)
    assert classes == np.argsort(-kinds, axis=1)[:, :2].ravel().tolist()
    table = np.reshape(numbers, (5, 4))
    np.testing.assert_allclose(table[:, :2], -np.sort(-kinds, axis=1)[:, :2], rtol=1e-6)
    np.testing.assert_allclose(table[:, 2:], sizes, rtol=1e-5, atol=1e-6)
    halves = [np.rint(part * 4) / 2 for part in inputs_of(np.abs(rows))]
    wanted = program.model([part.astype(np.float32) for part in halves], training=False)[1].numpy()
    got = np.reshape(prediction.batch(sent, 5, pytest.fail)[1], (5, 4))[:, 2:]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(InvalidData, match="shapes of the rows differ"):
        prediction.batch(sent[:-6], 5, pytest.fail)


def block(shapes, arrays):
    told = [size for shape in shapes for size in (3, *shape)]
    return b"".join(array.tobytes() for array in arrays), told


def test_blocks_of_a_buffer():
    rows = np.arange(21, dtype=np.float32).reshape(3, 7)
    data, told = block(SHAPES, inputs_of(rows))
    assert np.array_equal(buffers.decode_features(data, told, SHAPES), rows)
    for bad in (told[:-1], [4, *told[1:]], [3, 2, 2, 4, 3], [None, *told[1:]], []):
        with pytest.raises(InvalidData, match="got a buffer"):
            buffers.decode_features(data, bad, SHAPES)
    for bad in (data[:-4], data + b"\0", None):
        with pytest.raises(InvalidData, match="got a buffer"):
            buffers.decode_features(bad, told, SHAPES)
    one, _ = block(SHAPES, inputs_of(rows[:1]))
    shape = [size for shape in SHAPES for size in (1, *shape)]
    assert np.array_equal(buffers.decode_features(one, shape, SHAPES), rows[:1])
    with pytest.raises(InvalidData, match=r"got a buffer of the shapes \(True"):
        buffers.decode_features(one, [True, *shape[1:]], SHAPES)


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_of_targets(weighted):
    ids, weights = np.array([2, 0, 1], "<i4"), np.array([0.5, 1, 2], "<f4")
    pairs = np.arange(6, dtype="<f4").reshape(3, 2)
    first = ids.tobytes()
    if weighted:
        first = buffers.with_weights(first, weights.tobytes(), 3)
    found = buffers.decode_targets(first + pairs.tobytes(), [3, 3, 2], facts(weighted))
    assert np.array_equal(found["target"], ids)
    assert np.array_equal(found["target_1"], pairs)
    assert not weighted or np.array_equal(found["weight"], weights)
    with pytest.raises(InvalidData, match="bytes; its shapes take"):
        buffers.decode_targets(first, [3, 3, 2], facts(weighted))


def test_files_of_a_model(recipe, architecture, tmp_path):
    import keras
    import onnxruntime

    from cerebro_db.configs.names import Format
    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.state import from_bytes
    from cerebro_db.training.tasks import Architectures, export

    given, data = recipe(architecture, TEXT, "batch_size=8", facts()), several(partitions=1)
    state = hops(given, data)
    program = Program(given)
    program.load(from_bytes(state))
    rows = inputs_of(data.features[0])
    wanted = [one.numpy() for one in program.model(rows, training=False)]

    def file(kind):
        told = json.dumps(task(given, facts="{}"))
        return export(told, state, Format(kind), Architectures(), lambda: None)

    path = tmp_path / "model.keras"
    path.write_bytes(file("keras"))
    found = keras.models.load_model(path).predict(rows, verbose=0)
    session = onnxruntime.InferenceSession(file("onnx"), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    by_onnx = session.run(None, dict(zip(names, rows, strict=True)))
    for place, one in enumerate(wanted):
        np.testing.assert_allclose(found[place], one, atol=1e-6, rtol=0)
        np.testing.assert_allclose(by_onnx[place], one, atol=1e-5, rtol=0)
    assert file("npz")[:2] == b"PK"


def test_models_that_predict_together_share_the_memory(architecture):
    from cerebro_db.configs.architectures.limits import ArchitectureLimits
    from cerebro_db.training.tasks import Architectures, recipe_of

    known = Architectures(ArchitectureLimits(), memory_mb=900)
    given = {"architecture": architecture, "architecture_id": "a", "jit": False, "steps_per_call": 1,
             "compile_params": TEXT, "fit_params": "batch_size=8",
             "targets": {"kind": "float", "num_classes": 0, "shape": []}}  # fmt: skip
    model = recipe_of(given, known)
    known.check_together([(model, 2**20)] * 3)
    with pytest.raises(
        InvalidArgument, match=r"got 90 models together .* data 90 MB.*; allowed"
    ) as no:
        known.check_together([(model, 2**20)] * 90)
    assert "fewer models" in no.value.hint

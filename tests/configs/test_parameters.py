"""Parameter strings become validated values, or an error that says what is allowed."""

from __future__ import annotations

import re

import pytest

from cerebro_db.configs.arguments import Target
from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.functions.metrics import MetricSpec, parse_metrics
from cerebro_db.configs.functions.optimizers import OptimizerSpec, parse_optimizer
from cerebro_db.configs.grids.parameters import (
    CompileParams,
    FitParams,
    parse_compile_params,
    parse_fit_params,
)
from cerebro_db.decide import callbacks
from cerebro_db.errors import InvalidArgument

ACCURACY = MetricSpec("accuracy", (), "accuracy")
CROSSENTROPY = LossSpec("CategoricalCrossentropy")


@pytest.mark.parametrize(
    "text",
    [
        "loss='categorical_crossentropy',optimizer='Adam(lr=0.1)',metrics=['accuracy']",
        "loss='categorical_crossentropy', optimizer='adam(learning_rate=.1)',metrics=['acc']",
        " optimizer=Adam(lr=1e-1),metrics='accuracy',loss=categorical_crossentropy ",
        "optimizer='keras.optimizers.Adam(lr=0.1, beta_1=0.9)', metrics=('accuracy',), "
        "loss='losses.categorical_crossentropy', loss_weights=None, l2=None",
        "optimizer='Adam(lr=0.1, decay=0.0)',metrics=['accuracy'],"
        "loss=keras.losses.CategoricalCrossentropy(from_logits=False)",
    ],
)
def test_ways_to_write_the_same(text: str) -> None:
    expected = CompileParams(
        OptimizerSpec("Adam", (("learning_rate", 0.1),)), CROSSENTROPY, (ACCURACY,)
    )
    assert parse_compile_params(text) == expected
    assert hash(parse_compile_params(text)) == hash(expected)


def test_all_of_compile() -> None:
    params = parse_compile_params(
        "optimizer='SGD(lr=1, momentum=0.9, nesterov=True, clipnorm=1.0)', loss='Huber(delta=2)', "
        "metrics=['mae', \"AUC(curve='PR', name='pr')\", AUC(thresholds=[0.5]), AUC()], "
        "l1=0, l2=1e-4, dropout=0.25"
    )
    assert params.optimizer.arguments == (
        ("learning_rate", 1.0),
        ("momentum", 0.9),
        ("nesterov", True),
        ("clipnorm", 1.0),
    )
    assert params.optimizer.all_arguments()["weight_decay"] is None
    assert params.loss == LossSpec("Huber", (("delta", 2.0),))
    assert params.loss.target is Target.FLOAT
    assert [m.label for m in params.metrics] == ["mean_absolute_error", "pr", "auc", "auc_1"]
    assert params.metrics[2].arguments == (("thresholds", (0.5,)),)
    assert params.metrics[1].all_arguments()["name"] == "pr"
    assert (params.l1, params.l2, params.dropout) == (0.0, 0.0001, 0.25)


SCHEDULES = {
    "Adam(learning_rate=ExponentialDecay(0.01, 1000, 0.9))": "ExponentialDecay("
    "initial_learning_rate=0.01, decay_steps=1000, decay_rate=0.9)",
    "Adam(CosineDecay(0.01, decay_steps=10, warmup_steps=2))": "CosineDecay("
    "initial_learning_rate=0.01, decay_steps=10, warmup_steps=2)",
    "Adam(lr='keras.optimizers.schedules.PiecewiseConstantDecay([5, 9], [3, 2, 1])')": "PiecewiseConstantDecay("
    "boundaries=(5, 9), values=(3.0, 2.0, 1.0))",
    "SGD(lr=0.5, decay=0.1)": "InverseTimeDecay("
    "initial_learning_rate=0.5, decay_steps=1, decay_rate=0.1)",
    "SGD(decay=0.1)": "InverseTimeDecay(initial_learning_rate=0.01, decay_steps=1, decay_rate=0.1)",
    "SGD(0.1, decay=0)": "None",
}  # fmt: skip


@pytest.mark.parametrize(("text", "schedule"), SCHEDULES.items())
def test_schedules(text: str, schedule: str) -> None:
    optimizer = parse_optimizer(text)
    assert repr(optimizer.schedule) == schedule
    if optimizer.schedule is not None:  # what is shown is what can be written
        assert parse_optimizer(f"{optimizer.name}({schedule})") == optimizer


def test_arguments_without_names() -> None:
    assert parse_optimizer("SGD(0.1, 0.5, True)") == parse_optimizer(
        "SGD(lr=0.1, momentum=0.5, nesterov=True)"
    )


def test_callbacks_that_ask_for_what_is_done_anyway() -> None:
    plain = parse_fit_params("batch_size=8")
    for value in (
        "[TerminateOnNaN()]",
        "'[TerminateOnNaN()]'",
        "[keras.callbacks.TerminateOnNaN]",
        "[]",
    ):
        assert parse_fit_params(f"batch_size=8,callbacks={value}") == plain


def test_callbacks_that_act_between_epochs() -> None:
    text = "[keras.callbacks.EarlyStopping('loss', 0.5, 3, 1, baseline=2), TerminateOnNaN()]"
    (stopping,) = parse_fit_params(f"callbacks={text}").callbacks
    assert stopping.name == "EarlyStopping"
    assert stopping.all_arguments() == {
        "monitor": "loss", "min_delta": 0.5, "patience": 3, "verbose": 0, "mode": "auto",
        "baseline": 2.0, "restore_best_weights": False, "start_from_epoch": 0,
    }  # fmt: skip
    (scheduler,) = parse_fit_params(
        "callbacks=['LearningRateScheduler(ExponentialDecay(0.1, 2, 0.5), verbose=1)']"
    ).callbacks
    assert repr(scheduler.schedule).startswith("ExponentialDecay(initial_learning_rate=0.1")


MONITORED = "loss='mse',optimizer='Adam',metrics=['acc','TruePositives']"


@pytest.mark.parametrize(
    ("callback", "validated", "message"),
    [
        ("EarlyStopping()", True, None),
        ("EarlyStopping('val_acc')", True, None),
        ("EarlyStopping('accuracy')", False, None),
        ("EarlyStopping('true_positives', mode='max')", False, None),
        ("EarlyStopping()", False, r"EarlyStopping: got monitor='val_loss'; allowed: loss, accuracy, true_pos"),
        ("EarlyStopping('acuracy')", True, "allowed: loss, accuracy, true_positives, val_loss, val_acc"),
        ("ReduceLROnPlateau('true_positives')", False, "nobody knows whether more is better"),
    ],
)  # fmt: skip
def test_monitors(callback: str, validated: bool, message: str | None) -> None:
    params, fit = parse_compile_params(MONITORED), parse_fit_params(f"callbacks=[{callback}]")
    if message is None:
        callbacks.check(params, fit, validated=validated)
        return
    with pytest.raises(InvalidArgument, match=message):
        callbacks.check(params, fit, validated=validated)


@pytest.mark.parametrize(
    "callback",
    ["ReduceLROnPlateau('loss')", "LearningRateScheduler(CosineDecay(0.1, 2))"],
)
@pytest.mark.parametrize(
    "optimizer",
    [
        "Adam(CosineDecay(0.1, 100))",
        "SGD(lr=0.1,decay=0.01)",
        "MultiOptimizer(OptimizerMap(SGD()))",
    ],
)
def test_callbacks_do_not_change_a_rate_that_is_no_number(callback: str, optimizer: str) -> None:
    params = parse_compile_params(f"loss='mse',optimizer='{optimizer}'")
    with pytest.raises(InvalidArgument, match=r"whose learning_rate is .*; allowed: a number"):
        callbacks.check(params, parse_fit_params(f"callbacks=[{callback}]"), validated=False)
    others = parse_fit_params("callbacks=[TensorBoard('here'), EarlyStopping('loss')]")
    callbacks.check(params, others, validated=False)


def test_top_k_accuracy_by_its_name_in_madlib() -> None:
    (metric,) = parse_metrics("top_12_accuracy")
    assert (metric.name, metric.arguments) == ("TopKCategoricalAccuracy", (("k", 12),))
    assert metric.label == "top_12_accuracy"
    with pytest.raises(InvalidArgument, match="unknown metric 'top_0_accuracy'") as caught:
        parse_metrics("top_0_accuracy")
    assert caught.value.hint == "top_<k>_accuracy has a number from 1 in it, such as top_3_accuracy"


def test_a_number_that_is_too_large_is_reported_as_it_was_written() -> None:
    with pytest.raises(InvalidArgument, match=r"got 1\.5e400; allowed are") as caught:
        parse_compile_params("loss='mse', l2=[0.1,\n 1.5e400], optimizer='SGD'")
    assert "docs/sql/configurations.md" in (caught.value.hint or "")
    with pytest.raises(InvalidArgument, match="optimizer: got 1E999; allowed are"):
        parse_compile_params("loss='mse', optimizer='SGD(lr=-1E999)'")


def test_freeze() -> None:
    text = "optimizer='Adam', loss='mse'"
    assert parse_compile_params(text).freeze == ()
    assert parse_compile_params(f"{text}, freeze=[]").freeze == ()
    assert parse_compile_params(f"{text}, freeze='conv*'").freeze == ("conv*",)
    assert parse_compile_params(f"{text}, freeze=['a', 'b', 'a']").freeze == ("a", "b")


def test_dtype_policy() -> None:
    text = "optimizer='Adam', loss='mse'"
    assert parse_compile_params(text).dtype_policy is None
    given = parse_compile_params(f"{text}, dtype_policy='mixed_bfloat16'")
    assert given.dtype_policy == "mixed_bfloat16"


def test_loss_per_member() -> None:
    text = "optimizer='Adam', loss='mse'"
    assert not parse_compile_params(text).loss_per_member
    assert parse_compile_params(f"{text}, loss_per_member=True").loss_per_member
    assert not parse_compile_params(f"{text}, loss_per_member=False").loss_per_member


def test_averages_of_weights() -> None:
    spec = parse_optimizer("Adam(use_ema=True, ema_overwrite_frequency=5)")
    assert dict(spec.arguments) == {"use_ema": True, "ema_overwrite_frequency": 5}


def test_layers_that_an_optimizer_leaves_out() -> None:
    one, several = (parse_optimizer(f"Muon(exclude_layers={given})") for given in _EXCLUDED)
    assert dict(one.arguments) == {"exclude_layers": ("out",)}
    assert dict(several.arguments) == {"exclude_layers": ("^out/", "a|b")}
    assert parse_optimizer("Muon(exclude_layers=None)").arguments == ()
    assert parse_optimizer("Muon(exclude_layers=[])").arguments == (("exclude_layers", ()),)


def test_several_optimizers() -> None:
    spec = parse_optimizer(
        "keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(Adam(0.1), {'a/.*': SGD, "
        "'b': 'Lion(0.2)'}), loss_scale_factor=8)"
    )
    assert spec == OptimizerSpec(
        "MultiOptimizer",
        (("loss_scale_factor", 8.0),),
        (
            ("a/.*", OptimizerSpec("SGD")),
            ("b", OptimizerSpec("Lion", (("learning_rate", 0.2),))),
            (None, OptimizerSpec("Adam", (("learning_rate", 0.1),))),
        ),
    )
    for text in ("tensorflow.keras.optimizers.OptimizerMap(SGD())", "'optimizermap(SGD())'"):
        assert parse_optimizer(f"MultiOptimizer({text})").parts == ((None, OptimizerSpec("SGD")),)
    named = "optimizer_map=OptimizerMap(optimizer_map={'a/.*': SGD()}, default_optimizer=Adam())"
    assert parse_optimizer(f"MultiOptimizer({named})").parts[1] == (None, OptimizerSpec("Adam"))
    assert not spec.keeps_averages
    averaged = "MultiOptimizer(OptimizerMap(Adam(), {'a': SGD(use_ema=True)}))"
    assert parse_optimizer(averaged).keeps_averages


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "got optimizer_map=None; it must be such as OptimizerMap"),
        ("Adam()", "got optimizer_map=Adam(); it must be such as OptimizerMap"),
        ("OptimizerMap(optimizer_map={'a': SGD()})", "it must have a default optimizer"),
        ("OptimizerMap(Adam(), [SGD()])", "a dictionary from paths of weights"),
        ("OptimizerMap(Adam(), {'(a': SGD()})", "got a key of optimizer_map='(a'"),
        ("OptimizerMap(Adam(), {1: SGD()})", "got a key of optimizer_map=1"),
        ("OptimizerMap(Adam(), {'a': SDG()})", "Did you mean 'SGD'?"),
        ("OptimizerMap(Adam(), {'a': SGD(lr=-1)})", "got learning_rate=-1"),
        ("OptimizerMap(Adam(), maps={})", "the unknown argument 'maps'"),
        ("OptimizerMap(MultiOptimizer(OptimizerMap(Adam())))", "got MultiOptimizer inside of it"),
        ("OptimizerMap(Adam()), learning_rate=0.1", "the unknown argument 'learning_rate'"),
    ],
)
def test_several_optimizers_that_are_wrong(arguments: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(told)):
        parse_optimizer(f"MultiOptimizer({arguments})")


_EXCLUDED = ("'out'", "['^out/', 'a|b']")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss='mse'", "without optimizer"),
        ("optimizer='Muon(exclude_layers=\"[\")', loss='mse'", "must be a regular expression"),
        ("optimizer='Muon(exclude_layers=\"(a+)+b\")', loss='mse'", "no groups"),
        ("optimizer='Muon(exclude_layers=\"a*a*\")', loss='mse'", "at most one of"),
        ("optimizer='Muon(exclude_layers=[1])', loss='mse'", "=1; it must be a regular expr"),
        ("optimizer='Adam', loss='mse', loss_per_member='yes'", "loss_per_member"),
        ("optimizer='Adam', loss='mse', dtype_policy='float16'", "one of 'float32', 'mixed_bfl"),
        ("optimizer='Adam', loss='mse', dtype_polcy='float32'", "Did you mean 'dtype_policy'"),
        ("optimizer='SGD(use_ema=1)', loss='mse'", "use_ema=1; it must be True or False"),
        ("optimizer='SGD(ema_momentum=2)', loss='mse'", "it must be a number from 0 to 1"),
        ("optimizer='SGD(ema_overwrite_frequency=0)', loss='mse'", "a whole number from 1"),
        ("optimizer='Adam'", "without loss"),
        ("optimizer='Adm', loss='mse'", "Did you mean 'Adam'"),
        ("optimizer='Adam', los='mse'", "Did you mean 'loss'"),
        ("optimizer='Adam(lrr=1)', loss='mse'", "unknown argument 'lrr'. Did you mean 'lr'"),
        ("optimizer='Adam(lr=-1)', loss='mse'", r"learning_rate=-1; it must be a number from 0"),
        ("optimizer='Adam(lr=1, learning_rate=1)', loss='mse'", "got lr and learning_rate, which"),
        ("optimizer='Adam(lr=\"x\")', loss='mse'", "unknown learning-rate schedule 'x'"),
        ("optimizer='Adam(lr=CosineDecy(0.1, 5))', loss='mse'", "Did you mean 'CosineDecay'"),
        ("optimizer='Adam(lr=CosineDecay(0.1))', loss='mse'", "decay_steps must be given"),
        (
            "optimizer='Adam(lr=CosineDecay(0.1, 0))', loss='mse'",
            "decay_steps=0; it must be a whole",
        ),
        (
            "optimizer='Adam(lr=CosineDecay(0.1, 5, 0, 1))', loss='mse'",
            "the value 1 without a name",
        ),
        (
            "optimizer='Adam(lr=CosineDecay(0.1, 5, decay_steps=5))', loss='mse'",
            "'decay_steps' twice",
        ),
        ("optimizer='Adam(lr=CosineDecay(0.1, 5), decay=0.1)', loss='mse'", "allowed is one"),
        (
            "optimizer='Adam(lr=PiecewiseConstantDecay([5, 2], [1, 2]))', loss='mse'",
            "boundaries that rise",
        ),
        ("optimizer='Adam(lr=True)', loss='mse'", "must be a number"),
        ("optimizer='Adam(lr=None)', loss='mse'", "must be a number"),
        ("optimizer='Adam(beta_1=1)', loss='mse'", "from 0 below 1"),
        ("optimizer='Adam(decay=-0.1)', loss='mse'", "decay=-0.1; it must be a number from 0"),
        ("optimizer='Adam', loss='mse', freeze=7", "freeze=7; it must be the name of a layer"),
        ("optimizer='Adam', loss='mse', freeze=['a', 1]", "must be the name of a layer"),
        ("optimizer='Adam(clipnorm=1,clipvalue=1)', loss='mse'", "at most one"),
        ("optimizer='Adam(0.1, lr=0.1)', loss='mse'", "got learning_rate and lr, which"),
        ("optimizer='SGD(0.1, 0.5, True, 0.1)', loss='mse'", "the value 0.1 without a name"),
        ("optimizer='Adam', loss='Huber(2.0)'", "the value 2.0 without a name"),
        ("optimizer='Adam', loss={'a': ['mse']}", "must be one name"),
        ("optimizer='Adam', loss={}", "one element for each output"),
        ("optimizer='Adam', loss=[None]", "the loss None; it must be one name"),
        ("optimizer='Adam', loss={1: 'mse'}", "dictionary from names of outputs"),
        ("optimizer='Adam', loss='mse', loss_weights=[-1]", "loss_weights=-1; it must be a number"),
        ("optimizer='Adam', loss='mse', loss_weights=['a']", "must be a number from 0"),
        ("optimizer='Adam', loss='my_loss'", "unknown loss 'my_loss'"),
        ("optimizer='Adam', loss='mse', metrics=['acuracy']", "Did you mean 'accuracy'"),
        ("optimizer='Adam', loss='mse', metrics={'a': 1}", "list of names"),
        ("optimizer='Adam', loss='mse', metrics=['mae', 'mae']", "twice"),
        ("optimizer='Adam', loss='mse', metrics=[1]", "must be one name"),
        ("optimizer='Adam', loss='mse', metrics=[IoU()]", "num_classes must be given"),
        ("optimizer='Adam', loss='mse', metrics=[AUC(curve='x')]", "one of 'ROC', 'PR'"),
        ("optimizer='Adam', loss='mse', metrics=[AUC(name='loss')]", "is taken"),
        ("optimizer='Adam', loss='mse', l2=-1", "l2=-1; it must be a number from 0 or None"),
        ("optimizer='Adam', loss='mse', dropout=1", "from 0 below 1"),
        ("", "without optimizer"),
    ],
)
def test_refused_compile(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_compile_params(text)


def test_fit() -> None:
    assert parse_fit_params("batch_size=16,epochs=1") == FitParams(16)
    assert parse_fit_params(" epochs=3, batch_size=64, verbose=2 ") == FitParams(64, 3)
    assert parse_fit_params("") == FitParams(32, 1, True, None)
    params = parse_fit_params("batch_size=8.0, shuffle=False, class_weight={1: 2, 0: 0.5}")
    assert params == FitParams(8, 1, False, ((0, 0.5), (1, 2.0)))
    assert isinstance(params.batch_size, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_size=0", "batch_size=0; it must be a whole number from 1"),
        ("batch_size=1.5", "whole number"),
        ("batch_size='32'", "whole number"),
        ("batch_size=None", "whole number"),
        ("batchsize=1", "Did you mean 'batch_size'"),
        ("callbacks=['x']", "unknown callback 'x'"),
        ("callbacks=[TerminateOnNans()]", "Did you mean 'TerminateOnNaN'"),
        ("callbacks=[TerminateOnNaN(1)]", "TerminateOnNaN has no arguments"),
        ("callbacks='[TensorBoard(log_dir=\"/tmp/logs/fit\")]'", "it must be a relative path"),
        ("callbacks=[TensorBoard(histogram_freq=1)]", "unknown argument 'histogram_freq'"),
        ("callbacks=[EarlyStoping()]", "Did you mean 'EarlyStopping'"),
        ("callbacks=[EarlyStopping(patience=-1)]", "patience=-1; it must be a whole number from 0"),
        (
            "callbacks=[EarlyStopping(patiance=1)]",
            "unknown argument 'patiance'. Did you mean 'patience'",
        ),
        ("callbacks=[EarlyStopping(mode='most')]", "mode='most'; it must be one of"),
        ("callbacks=[EarlyStopping(),EarlyStopping('loss')]", "EarlyStopping twice; allowed: each"),
        (
            "callbacks=[ReduceLROnPlateau(factor=1.0)]",
            "factor=1.0; it must be a number from 0 below 1",
        ),
        (
            "callbacks=[ReduceLROnPlateau(),LearningRateScheduler(CosineDecay(1, 2))]",
            "allowed is one of them",
        ),
        ("callbacks=[LearningRateScheduler()]", "schedule=None; it must be a schedule"),
        ("callbacks=[LearningRateScheduler(Expo(1))]", "unknown learning-rate schedule 'Expo'"),
        (
            "callbacks=[LearningRateScheduler('os.system')]",
            "the learning-rate schedule 'os.system'; allowed are those of keras",
        ),
        ("callbacks=7", "it must be a list such as"),
        ("callbacks=['[TerminateOnNaN()]']", "it must be a name"),
        ("steps_per_epoch=1", "'steps_per_epoch'; it is not supported"),
        ("shuffle='batch'", "True or False"),
        ("class_weight=[1]", "dictionary"),
        ("class_weight={'a': 1}", "whole number"),
        ("class_weight={0: -1}", "a number from 0"),
        ("class_weight={0: None}", "a number from 0"),
        ("epochs=99999999999", "to 1000000"),
    ],
)
def test_refused_fit(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_fit_params(text)

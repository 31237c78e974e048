"""Operations of ATen that a graph may have, and which of their arguments tell training from evaluation.

None of them reads or writes a file, takes a name of code, or reaches memory that is not its arguments'. What they may
do to a process is bounded by the sizes of tensors, which are found before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ATEN = "torch.ops.aten."

_LAYERS = """
    linear.default matmul.default mm.default bmm.default addmm.default baddbmm.default einsum.default mv.default
    dot.default addmv.default bilinear.default outer.default
    conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding conv3d.padding
    conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input convolution.default
    embedding.default lstm.input gru.input rnn_tanh.input rnn_relu.input
    scaled_dot_product_attention.default
    batch_norm.default instance_norm.default layer_norm.default group_norm.default rms_norm.default
    native_layer_norm.default native_group_norm.default _native_batch_norm_legit.default
    _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional.default
    _native_batch_norm_legit_no_training.default native_batch_norm.default local_response_norm.default
    dropout.default dropout_.default feature_dropout.default feature_dropout_.default alpha_dropout.default
    alpha_dropout_.default feature_alpha_dropout.default native_dropout.default
    max_pool1d.default max_pool2d.default max_pool3d.default max_pool2d_with_indices.default
    avg_pool1d.default avg_pool2d.default avg_pool3d.default
    adaptive_avg_pool1d.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default
    _adaptive_avg_pool2d.default adaptive_max_pool1d.default adaptive_max_pool2d.default
    upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec
    upsample_bilinear2d.vec upsample_bicubic2d.vec upsample_trilinear3d.vec _upsample_bilinear2d_aa.vec
    upsample_nearest2d.default upsample_bilinear2d.default upsample_bicubic2d.default
    grid_sampler.default grid_sampler_2d.default affine_grid_generator.default
    pixel_shuffle.default pixel_unshuffle.default channel_shuffle.default im2col.default col2im.default
    pad.default constant_pad_nd.default reflection_pad1d.default reflection_pad2d.default
    replication_pad1d.default replication_pad2d.default
"""
_ACTIVATIONS = """
    relu.default relu_.default relu6.default relu6_.default gelu.default silu.default silu_.default
    sigmoid.default sigmoid_.default tanh.default tanh_.default softmax.int _softmax.default log_softmax.int
    _log_softmax.default hardtanh.default hardtanh_.default hardswish.default hardswish_.default
    hardsigmoid.default hardsigmoid_.default leaky_relu.default leaky_relu_.default elu.default elu_.default
    selu.default selu_.default celu.default celu_.default mish.default mish_.default softplus.default
    softsign.default prelu.default _prelu_kernel.default rrelu.default glu.default log_sigmoid.default
    hardshrink.default softshrink.default tanhshrink.default threshold.default threshold_.default
    special_softmax.int
"""
_POINTWISE = """
    multiply.Tensor multiply.Scalar subtract.Tensor divide.Tensor true_divide.Tensor negative.default absolute.default
    add.Tensor add.Scalar add_.Tensor add_.Scalar sub.Tensor sub.Scalar sub_.Tensor sub_.Scalar rsub.Scalar
    rsub.Tensor mul.Tensor mul.Scalar mul_.Tensor mul_.Scalar div.Tensor div.Scalar div_.Tensor div_.Scalar
    div.Tensor_mode div.Scalar_mode floor_divide.default floor_divide.Scalar remainder.Scalar remainder.Tensor
    fmod.Scalar fmod.Tensor addcmul.default addcdiv.default lerp.Scalar lerp.Tensor
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar pow_.Scalar square.default sqrt.default rsqrt.default
    exp.default exp_.default expm1.default exp2.default log.default log1p.default log2.default log10.default
    sin.default cos.default tan.default asin.default acos.default atan.default atan2.default sinh.default
    cosh.default asinh.default acosh.default atanh.default erf.default erfc.default erfinv.default
    special_erf.default special_expit.default reciprocal.default neg.default neg_.default abs.default
    abs_.default sign.default sgn.default floor.default ceil.default round.default round.decimals
    trunc.default frac.default clamp.default clamp.Tensor clamp_.default clamp_min.default clamp_max.default
    clamp_min_.default clamp_max_.default clip.default minimum.default maximum.default
    max.other min.other fmax.default fmin.default nan_to_num.default logaddexp.default hypot.default
    eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar
    ge.Tensor ge.Scalar logical_and.default logical_or.default logical_not.default logical_xor.default
    bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor
    bitwise_not.default __and__.Tensor __and__.Scalar __or__.Tensor __or__.Scalar __xor__.Tensor
    isnan.default isinf.default isfinite.default where.self where.Scalar where.ScalarSelf where.ScalarOther
    masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor heaviside.default
    xlogy.Tensor logit.default sinc.default
"""
_REDUCTIONS = """
    sum.default sum.dim_IntList mean.default mean.dim max.default max.dim min.default min.dim amax.default
    amin.default argmax.default argmin.default prod.default prod.dim_int var.default var.dim var.correction
    std.default std.dim std.correction var_mean.default var_mean.dim var_mean.correction std_mean.correction
    norm.Scalar norm.ScalarOpt_dim linalg_vector_norm.default logsumexp.default any.default any.dim all.default
    all.dim cumsum.default cumprod.default topk.default sort.default sort.stable argsort.default argsort.stable
    count_nonzero.default cosine_similarity.default pairwise_distance.default cdist.default _cdist_forward.default
    median.dim kthvalue.default unique_dim.default aminmax.default
"""
_SHAPES = """
    lift_fresh_copy.default cat.default concat.default concatenate.default stack.default hstack.default vstack.default repeat.default tile.default
    repeat_interleave.self_int roll.default flip.default clone.default _to_copy.default
    constant.default copy_.default copy.default fill_.Scalar fill_.Tensor fill.Scalar fill.Tensor zero_.default
    diff.default gather.default scatter.src scatter.value scatter_add.default index.Tensor index_select.default
    index_put.default index_add.default take_along_dim.default masked_scatter.default
    select_scatter.default slice_scatter.default tril.default triu.default one_hot.default
    block_diag.default bucketize.Tensor
    searchsorted.Tensor _unsafe_index.Tensor
"""
# Their results may be the memory of their first argument.
_VIEWS = """
    view.default _unsafe_view.default reshape.default reshape_as.default view_as.default flatten.using_ints
    unflatten.int transpose.int t.default permute.default numpy_T.default mT.default movedim.int movedim.intlist
    moveaxis.int moveaxis.intlist swapaxes.default swapdims.default squeeze.default squeeze.dim squeeze.dims
    unsqueeze.default expand.default expand_as.default broadcast_to.default broadcast_tensors.default
    slice.Tensor select.int narrow.default chunk.default split.Tensor split.default split_with_sizes.default split.sizes
    tensor_split.sections tensor_split.indices unbind.int unsafe_chunk.default unsafe_split.Tensor
    unsafe_split_with_sizes.default diagonal.default unfold.default atleast_1d.default atleast_2d.default
    ravel.default contiguous.default detach.default detach_.default alias.default
    to.dtype to.device to.other type_as.default view.dtype dropout.default feature_dropout.default alpha_dropout.default
    feature_alpha_dropout.default resolve_conj.default resolve_neg.default rrelu.default to.dtype_layout
    meshgrid.default meshgrid.indexing cartesian_prod.default
"""
_MAKERS = """
    arange.default arange.start arange.start_step linspace.default zeros.default ones.default full.default
    zeros_like.default ones_like.default full_like.default new_zeros.default new_ones.default new_full.default
    empty_like.default new_empty.default empty.memory_format scalar_tensor.default eye.default eye.m
    tril_indices.default triu_indices.default
    zeros.names ones.names
"""
# They draw from the generator of the configuration.
_DRAWING = """
    rand.default randn.default rand_like.default randn_like.default randint.default bernoulli.default bernoulli.p
    bernoulli_.float normal.Tensor_float normal_functional.default uniform.default uniform_.default normal_.default
    exponential_.default
"""
_CHECKS = """
    _assert_tensor_metadata.default _assert_scalar.default sym_constrain_range.default
    sym_constrain_range_for_size.default
"""
_SYMBOLS = """
    torch.ops.aten.sym_size.int _operator.add _operator.sub _operator.mul _operator.floordiv _operator.mod _operator.neg
    _operator.eq _operator.ne _operator.lt _operator.le _operator.gt _operator.ge _operator.and_ _operator.or_
    _operator.truediv _operator.pos torch.sym_not torch.sym_max torch.sym_min torch.sym_float torch.sym_int
    math.floor math.ceil math.trunc
"""


def _targets(names: str) -> frozenset[str]:
    return frozenset(ATEN + name for name in names.split())


VIEWS = _targets(_VIEWS)
CHECKS = _targets(_CHECKS)
SYMBOLS = frozenset(_SYMBOLS.split())
TENSORS = _targets(
    _LAYERS + _ACTIVATIONS + _POINTWISE + _REDUCTIONS + _SHAPES + _VIEWS + _MAKERS + _DRAWING
) - _targets(
    "unique_dim.default zeros.names ones.names _unsafe_index.Tensor view.dtype constant.default"
)
# Of whole numbers, a divisor that is not a positive constant may end the process.
DIVISIONS = _targets(
    "div.Tensor_mode div.Scalar_mode floor_divide.default floor_divide.Scalar remainder.Scalar remainder.Tensor "
    "fmod.Scalar fmod.Tensor"
)
ALLOWED = TENSORS | CHECKS | SYMBOLS


class Bound(NamedTuple):
    """The largest value of an argument, a whole number from 0."""

    name: str
    place: int
    most: int


# Beyond these, a grid sampler leaves its result as the memory was.
_SAMPLING = (Bound("interpolation_mode", 2, 2), Bound("padding_mode", 3, 2))
BOUNDS: Mapping[str, tuple[Bound, ...]] = {
    ATEN + "diff.default": (Bound("n", 1, 8),),  # each is a pass over the tensor
    ATEN + "grid_sampler.default": _SAMPLING,
    ATEN + "grid_sampler_2d.default": _SAMPLING,
}


class Flag(NamedTuple):
    """The argument by which an operation knows that it trains.

    Attributes:
        name, place: of the argument.
        off: its value in evaluation.
        draws: whether the operation draws random numbers where it is on.
    """

    name: str
    place: int
    off: Any
    draws: bool


_TRAIN = Flag("train", 2, False, True)
_RECURRENT = Flag("train", 6, False, True)
_NORM = Flag("training", 5, False, False)
FLAGS: Mapping[str, Flag] = {
    ATEN + name: flag
    for names, flag in (
        (
            "dropout.default dropout_.default feature_dropout.default feature_dropout_.default",
            _TRAIN,
        ),
        ("alpha_dropout.default alpha_dropout_.default feature_alpha_dropout.default", _TRAIN),
        ("native_dropout.default", _TRAIN),
        ("lstm.input gru.input rnn_tanh.input rnn_relu.input", _RECURRENT),
        ("batch_norm.default _native_batch_norm_legit.default native_batch_norm.default", _NORM),
        ("_native_batch_norm_legit_functional.default", _NORM),
        ("instance_norm.default", Flag("use_input_stats", 5, False, False)),
        ("scaled_dot_product_attention.default", Flag("dropout_p", 4, 0.0, True)),
        ("rrelu.default", Flag("training", 3, False, True)),
    )
    for name in names.split()
}
_DRAWS = _targets(_DRAWING)
_DETACH = "detach_"  # it changes no numbers


def flag_of(node: Any) -> Flag | None:
    """The flag of a node whose behaviour it decides; an instance norm without averages has none."""
    flag = FLAGS.get(node.target)
    if flag is None or flag.name != "use_input_stats":
        return flag
    return None if node.value("running_mean", 3) is None else flag


def is_on(node: Any) -> bool:
    """True for a node that behaves as in training."""
    flag = flag_of(node)
    return flag is not None and bool(node.value(flag.name, flag.place))


def is_drawing(target: str) -> bool:
    """True for an operation that draws random numbers whatever its arguments."""
    return target in _DRAWS


def draws(node: Any) -> bool:
    """True for a node that draws random numbers as it stands."""
    if is_drawing(node.target):
        return True
    flag = flag_of(node)
    return flag is not None and flag.draws and is_on(node) and node.value("dropout", 5) != 0.0


def may_be_view(node: Any) -> bool:
    """True for a node whose results may be the memory of an argument, as an einsum of one tensor is."""
    if node.target == ATEN + "einsum.default":
        tensors = node.value("tensors", 1)
        return not isinstance(tensors, list) or len(tensors) < 2
    return node.target in VIEWS


def is_in_place(target: str) -> bool:
    """True for an operation that changes its first argument."""
    name = target.removeprefix(ATEN).partition(".")[0]
    return name.endswith("_") and not name.startswith("__") and name != _DETACH

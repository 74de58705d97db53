"""The operators of ATen that a model may be made of, by name and overload.

A list, because PyTorch has thousands and most were never meant for untrusted programs: some change
a tensor in place, some give memory that was never set, some pack weights into tensors of raw
addresses. Listed is what computes tensors of tensors and nothing else:

* ``CORE``: what PyTorch tags as core ATen, but for operators that mutate, that give memory unset,
  that draw random numbers, and that only training needs;
* ``EXPORTED``: what ``modelless.export`` writes beside these. It keeps operators whole that are
  quicker so (a recurrent layer, an attention), and decomposes what is on neither list.

A test derives both from the installed PyTorch, and holds every overload there is against them.
"""

CORE: frozenset[str] = frozenset(
    """
    _adaptive_avg_pool2d.default _adaptive_avg_pool3d.default _cdist_forward.default
    _embedding_bag.default _fft_c2r.default _fft_r2c.default _local_scalar_dense.default
    _log_softmax.default _native_batch_norm_legit.no_stats
    _native_batch_norm_legit_no_training.default _pdist_forward.default _softmax.default
    _to_copy.default abs.default acos.default acosh.default adaptive_avg_pool1d.default
    add.Scalar add.Tensor addmm.default alias.default amax.default amin.default any.default
    any.dim any.dims arange.start_step argmax.default argmin.default as_strided.default
    asin.default asinh.default atan.default atan2.default atanh.default avg_pool1d.default
    avg_pool2d.default avg_pool3d.default bitwise_and.Scalar bitwise_and.Tensor
    bitwise_not.default bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar
    bitwise_xor.Tensor bmm.default cat.default ceil.default clamp.Tensor clamp.default
    clone.default col2im.default constant_pad_nd.default convolution.default copy.default
    cos.default cosh.default cumsum.default diagonal.default div.Scalar div.Scalar_mode
    div.Tensor div.Tensor_mode elu.default embedding.default eq.Scalar eq.Tensor erf.default
    exp.default expand.default expm1.default fill.Scalar flip.default floor.default
    fmod.Scalar fmod.Tensor full.default full_like.default gather.default ge.Scalar ge.Tensor
    gelu.default grid_sampler_2d.default gt.Scalar gt.Tensor hardtanh.default index.Tensor
    index_put.default index_select.default isinf.default isnan.default le.Scalar le.Tensor
    leaky_relu.default log.default log10.default log1p.default log2.default
    logical_and.default logical_not.default logical_or.default logical_xor.default lt.Scalar
    lt.Tensor masked_scatter.default max.dim max_pool2d_with_indices.default
    max_pool3d_with_indices.default maximum.default mean.default mean.dim min.dim
    minimum.default mm.default mul.Scalar mul.Tensor native_group_norm.default
    native_layer_norm.default ne.Scalar ne.Tensor neg.default nonzero.default permute.default
    pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod.default prod.dim_int
    reciprocal.default reflection_pad1d.default reflection_pad2d.default
    reflection_pad3d.default relu.default remainder.Scalar remainder.Tensor repeat.default
    replication_pad2d.default replication_pad3d.default round.default rsqrt.default
    scalar_tensor.default scatter.src scatter.value scatter_add.default scatter_reduce.two
    select.int select_scatter.default sigmoid.default sign.default sin.default sinh.default
    slice.Tensor slice_scatter.default sort.default split_with_sizes.default sqrt.default
    squeeze.dim squeeze.dims sub.Scalar sub.Tensor sum.dim_IntList sym_is_contiguous.default
    sym_numel.default sym_size.int sym_storage_offset.default sym_stride.int tan.default
    tanh.default topk.default trunc.default unsqueeze.default upsample_bilinear2d.vec
    upsample_nearest2d.vec var.correction var.dim view.default where.self
    """.split()  # noqa: SIM905 -- hundreds of quotes say nothing
)

EXPORTED: frozenset[str] = frozenset(
    """
    __and__.Scalar __and__.Tensor __lshift__.Scalar __or__.Tensor __rshift__.Scalar
    __xor__.Tensor _assert_scalar.default _assert_tensor_metadata.default _conj.default
    _unsafe_view.default _upsample_bilinear2d_aa.vec _upsample_nearest_exact2d.vec
    _weight_norm.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default
    adaptive_max_pool1d.default adaptive_max_pool2d.default adaptive_max_pool3d.default
    addcdiv.default addcmul.default affine_grid_generator.default all.default all.dim all.dims
    alpha_dropout.default aminmax.default angle.default arange.default arange.start
    argsort.default atleast_3d.default baddbmm.default batch_norm.default bilinear.default
    bitwise_left_shift.Tensor_Scalar block_diag.default broadcast_to.default bucketize.Tensor
    cdist.default celu.default chain_matmul.default channel_shuffle.default chunk.default
    clamp_min.default clip.default column_stack.default complex.default concatenate.default
    contiguous.default conv1d.default conv1d.padding conv2d.default conv2d.padding
    conv3d.default conv3d.padding conv_transpose1d.default conv_transpose2d.input
    conv_transpose3d.input copysign.Tensor cosine_similarity.default count_nonzero.default
    cross.default cummax.default cummin.default cumprod.default deg2rad.default detach.default
    diag_embed.default diff.default digamma.default dot.default dropout.default dstack.default
    einsum.default embedding_bag.padding_idx erfc.default erfinv.default exp2.default
    expand_as.default eye.default feature_dropout.default fft_fft.default fft_fft2.default
    fft_fftshift.default fft_ifft.default fft_irfft.default fft_irfft2.default
    fft_rfft.default fft_rfft2.default fill.Tensor flatten.using_ints fliplr.default
    floor_divide.default fmax.default fmin.default frac.default gcd.default glu.default
    grid_sampler.default group_norm.default gru.input gru_cell.default hann_window.default
    hardshrink.default hardsigmoid.default hardswish.default heaviside.default hstack.default
    hypot.default im2col.default imag.default index_add.default index_copy.default
    index_fill.int_Scalar inner.default instance_norm.default isclose.default isfinite.default
    isin.Tensor_Tensor kron.default kthvalue.default layer_norm.default ldexp.Tensor
    lerp.Scalar lerp.Tensor lgamma.default lift_fresh_copy.default linalg_cholesky.default
    linalg_det.default linalg_inv.default linalg_matrix_norm.str_ord linalg_norm.default
    linalg_pinv.atol_rtol_tensor linalg_solve.default linalg_vector_norm.default
    linear.default linspace.default log_sigmoid.default log_softmax.int logaddexp.default
    logaddexp2.default logcumsumexp.default logit.default logspace.default logsumexp.default
    lstm.input lstm_cell.default mT.default masked_fill.Scalar masked_fill.Tensor
    matmul.default max.default max_pool1d.default max_pool2d.default max_pool3d.default
    median.default median.dim meshgrid.indexing min.default mish.default mode.default
    movedim.int mv.default nan_to_num.default nanmean.default nanmedian.dim nansum.default
    narrow.default new_full.default new_ones.default new_zeros.default nextafter.default
    one_hot.default ones.default ones_like.default outer.default pad.default
    pairwise_distance.default pixel_shuffle.default pixel_unshuffle.default polar.default
    positive.default prelu.default quantile.scalar rad2deg.default ravel.default real.default
    relu6.default remainder.Scalar_Tensor repeat_interleave.self_int reshape.default
    reshape_as.default rms_norm.default rnn_relu.input rnn_tanh.input roll.default
    rot90.default rrelu.default rsub.Scalar scaled_dot_product_attention.default
    searchsorted.Tensor selu.default sgn.default signbit.default silu.default sinc.default
    softmax.int softplus.default softshrink.default special_entr.default special_i0.default
    special_log_ndtr.default split.Tensor square.default stack.default std.correction std.dim
    std_mean.correction std_mean.dim sum.default swapaxes.default take.default
    tensor_split.sections tensordot.default threshold.default tile.default to.device to.dtype
    to.dtype_layout transpose.int trapezoid.dx tril.default triu.default true_divide.Tensor
    type_as.default unbind.int unflatten.int unfold.default upsample_bicubic2d.vec
    upsample_linear1d.vec upsample_nearest1d.vec upsample_trilinear3d.vec var_mean.correction
    var_mean.dim view_as.default view_as_complex.default view_as_real.default vstack.default
    where.Scalar where.ScalarOther where.ScalarSelf xlogy.Tensor zero.default zeros.default
    zeros_like.default
    """.split()  # noqa: SIM905 -- hundreds of quotes say nothing
)

OPERATORS = CORE | EXPORTED

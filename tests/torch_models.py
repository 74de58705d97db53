"""A variety of small PyTorch modules: what users export, and so what servers have to take.

``MODULES`` maps a name to a function that makes a module and rows for it. Together they use the
operators that ``modelless.export`` writes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, torch.Tensor]


class Applied(nn.Module):  # type: ignore[misc]
    """A function of the rows, and of other modules where it needs weights."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.parts)


def rows(*shape: int) -> torch.Tensor:
    return torch.rand(3, *shape, generator=torch.Generator().manual_seed(1)) + 0.1


def all_of(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of what several functions make of the rows, one number for each row."""

    def summed(x: Any) -> Any:
        return sum(f(x).float().reshape(x.shape[0], -1).sum(1) for f in functions)

    return summed


def convolutional() -> Made:
    return (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, groups=2, bias=False), nn.SiLU(inplace=True),
            nn.Dropout2d(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3),
        ),
        rows(1, 8, 8),
    )  # fmt: skip


def other_convolutions() -> Made:
    line, cube = nn.Conv1d(4, 2, 1, padding="same"), nn.Conv3d(1, 2, 1)
    up, mirrored = nn.ConvTranspose2d(4, 4, 3, 2), nn.Conv2d(4, 2, 3, padding=1)
    reflected = nn.Conv2d(2, 2, 3, padding="same", padding_mode="reflect")
    back, deep = nn.ConvTranspose1d(4, 2, 3), nn.ConvTranspose3d(1, 2, 1)
    plain, same, thick = (
        nn.Conv1d(4, 2, 1),
        nn.Conv2d(4, 2, 3, padding="same"),
        nn.Conv3d(1, 2, 1, padding="same"),
    )

    def forward(x: Any, *parts: Any) -> Any:
        one, two, three = x[:, 0, 0], x[:, 0], x
        a, b, c, d, e, f, g, h, i, j = parts
        made = [a(one), f(one), h(one), e(d(c(two))), i(two), b(three), j(three), g(three)]
        return sum(each.flatten(2).mean(-1) for each in made)

    parts = (line, cube, up, mirrored, reflected, back, deep, plain, same, thick)
    return Applied(forward, *parts), rows(1, 4, 4, 4)


def activations() -> Made:
    return (
        Applied(
            all_of(
                F.relu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.hardswish,
                F.mish, F.elu, F.leaky_relu, F.softplus, F.relu6, F.selu, F.celu, F.hardsigmoid,
                F.logsigmoid, F.softsign, F.hardtanh, F.tanhshrink, F.softshrink, F.hardshrink,
                lambda x: F.threshold(x, 0.1, 1.0), F.glu, torch.sigmoid, torch.tanh,
                lambda x: F.softmax(x, -1), lambda x: F.log_softmax(x, -1),
                lambda x: F.softmin(x, -1), lambda x: F.rrelu(x, training=False),
                lambda x: F.relu(x, inplace=True), lambda x: F.hardswish(x * 2, inplace=True),
                lambda x: F.leaky_relu(x * 2, inplace=True), nn.AlphaDropout().eval(),
                lambda x: F.softmax(x, -1, dtype=torch.float64), F.logsigmoid,
                lambda x: F.log_softmax(x, -1, dtype=torch.float64),
            ),
        ),
        rows(4),
    )  # fmt: skip


def learned_activation() -> Made:
    return Applied(lambda x, prelu: prelu(x), nn.PReLU()), rows(4)


def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    return Applied(lambda x, encoder: encoder(x).mean(1), nn.TransformerEncoder(layer, 2)), rows(
        5, 8
    )


def decoder() -> Made:
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return Applied(lambda x, layer: layer(x, x, tgt_mask=mask).mean(1), layer), rows(5, 8)


def attention() -> Made:
    def forward(x: Any, heads: Any) -> Any:
        mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
        own = heads(x, x, x, attn_mask=mask)[0]
        parts = x.view(-1, 5, 2, 4).transpose(1, 2)
        plain = F.scaled_dot_product_attention(parts, parts, parts)
        causal = F.scaled_dot_product_attention(parts, parts, parts, is_causal=True)
        masked = F.scaled_dot_product_attention(parts, parts, parts, attn_mask=~mask)
        by_hand = (x @ x.transpose(1, 2)).masked_fill(mask, float("-inf")).softmax(-1) @ x
        return own.mean(1) + by_hand.mean(1) + (plain + causal + masked).mean((1, 2, 3))[:, None]

    return Applied(forward, nn.MultiheadAttention(8, 2, batch_first=True)), rows(5, 8)


def recurrent(kind: Callable[..., nn.Module]) -> Callable[[], Made]:
    def make() -> Made:
        layers = kind(8, 6, 2, batch_first=True, bidirectional=True)
        return (
            Applied(lambda x, a, b: b(a(x)[0][:, -1]), layers, nn.Linear(12, 3)),
            rows(5, 8),
        )

    return make


def cells() -> Made:
    def forward(x: Any, gru: Any, lstm: Any) -> Any:
        state = x.new_zeros(x.shape[0], 4)
        hidden, kept = torch.zeros_like(state), torch.zeros_like(state)
        for step in range(3):
            state = gru(x[:, step], state)
            hidden, kept = lstm(x[:, step], (hidden, kept))
        return state + hidden + kept

    return Applied(forward, nn.GRUCell(4, 4), nn.LSTMCell(4, 4)), rows(3, 4)


def embeddings() -> Made:
    def forward(x: Any, table: Any, mean: Any, largest: Any) -> Any:
        word = table(x)
        mask = (x != 0).unsqueeze(-1).to(word.dtype)
        pooled = (word * mask).sum(1) / mask.sum(1).clamp(min=1)
        return pooled + mean(x) + largest(x) + F.one_hot(x, 20)[:, 0, :4]

    parts = (
        nn.Embedding(20, 4, padding_idx=0), nn.EmbeddingBag(20, 4),
        nn.EmbeddingBag(20, 4, mode="max"),
    )  # fmt: skip
    drawn = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(1))
    return Applied(forward, *parts), drawn


def normalisations() -> Made:
    parts = (
        nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 4, 4]),
        nn.RMSNorm(4), nn.LocalResponseNorm(2), nn.BatchNorm2d(4),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
    )  # fmt: skip

    def forward(x: Any, *parts: Any) -> Any:
        return sum(part(x) for part in parts) + F.normalize(x)

    return Applied(forward, *parts), rows(4, 4, 4)


def resizing() -> Made:
    def to(mode: str, **more: Any) -> Callable[[Any], Any]:
        return lambda x: F.interpolate(x, scale_factor=2, mode=mode, **more)

    return (
        Applied(
            all_of(
                to("nearest"), to("nearest-exact"), to("bilinear"),
                to("bicubic", align_corners=True), to("bilinear", antialias=True), to("area"),
                lambda x: F.interpolate(x, size=(3, 5), mode="bilinear"),
                lambda x: F.interpolate(x[:, 0], scale_factor=2, mode="linear"),
                lambda x: F.interpolate(x[:, 0], scale_factor=2, mode="nearest"),
                lambda x: F.interpolate(x[:, None], scale_factor=2, mode="trilinear"),
                lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2),
                lambda x: F.channel_shuffle(x, 2),
                lambda x: F.grid_sample(x, x.new_zeros(x.shape[0], 2, 2, 2)),
                lambda x: F.affine_grid(x.new_ones(x.shape[0], 2, 3), [x.shape[0], 1, 2, 2]),
            )
        ),
        rows(4, 4, 4),
    )  # fmt: skip


def pools() -> Made:
    return (
        Applied(
            all_of(
                lambda x: F.avg_pool2d(x[:, 0], 2), lambda x: F.max_pool2d(x[:, 0], 2),
                lambda x: F.max_pool2d(x[:, 0], 2, return_indices=True)[0],
                lambda x: F.adaptive_max_pool2d(x[:, 0], 2), lambda x: F.lp_pool2d(x[:, 0], 2, 2),
                lambda x: F.adaptive_avg_pool2d(x[:, 0], 2),
                lambda x: F.max_pool1d(x[:, 0, 0], 2), lambda x: F.avg_pool1d(x[:, 0, 0], 2),
                lambda x: F.adaptive_avg_pool1d(x[:, 0, 0], 2),
                lambda x: F.adaptive_max_pool1d(x[:, 0, 0], 2),
                lambda x: F.max_pool3d(x, 2), lambda x: F.avg_pool3d(x, 2),
                lambda x: F.adaptive_avg_pool3d(x, 2), lambda x: F.adaptive_max_pool3d(x, 2),
            )
        ),
        rows(1, 4, 4, 4),
    )  # fmt: skip


def paddings() -> Made:
    return (
        Applied(
            all_of(
                lambda x: F.pad(x, (1, 1)),
                *(
                    lambda x, mode=mode: F.pad(x, (1, 1, 1, 1), mode=mode)
                    for mode in ("replicate", "reflect", "circular")
                ),
                lambda x: F.unfold(x, 2), lambda x: F.fold(F.unfold(x, 2), (4, 4), 2),
                nn.ZeroPad2d(1), nn.ConstantPad1d(1, 2.0),
            )
        ),
        rows(1, 4, 4),
    )  # fmt: skip


def shapes() -> Made:
    def forward(x: Any) -> Any:
        batch = x.shape[0]
        y = torch.cat(x.chunk(2, 1), 1).reshape(batch, -1).view(-1, 4, 4).permute(0, 2, 1)
        y = y.contiguous().unsqueeze(1).squeeze(1).expand(-1, 4, 4).flatten(1)
        y = y.unflatten(1, (4, 4)).movedim(1, 2).flip(1).roll(1, 1).repeat(1, 1, 1).tile(1, 1, 1)
        y = y + torch.stack(x.unbind(1), 1) + torch.narrow(x, 1, 0, 4) + x.mT + x.swapaxes(1, 2)
        y = y + torch.cat([x[:, :2], x[:, 2:]], 1) + torch.hstack(x.tensor_split(2, 1))
        y = y + torch.rot90(x, 1, (1, 2)) + x.repeat_interleave(2, 1)[:, ::2] + x.view_as(y)
        y = y + torch.diagonal(x, dim1=1, dim2=2).unsqueeze(-1) + torch.diag_embed(x[:, 0])
        y = y + x[:, [0, 2, 1, 3]] + x[..., :1] + x[:, None, 0] + x.select(1, 0)[:, None]
        y = y + x.expand_as(y) + x.reshape_as(y) + torch.flatten(x, 1).view_as(y)
        meshed = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")[0]
        y = y + torch.vstack([x[:, :2].mT]).mT.repeat(1, 2, 1) + torch.dstack([x, x])[..., :4]
        y = (
            y
            + torch.atleast_3d(x)
            + torch.ravel(x).view_as(x)
            + x.fliplr()
            + torch.block_diag(x[0, :2, :2], x[0, 2:, 2:])
            + x.unfold(1, 4, 1)[:, 0]
            + x.as_strided((4, 4), (4, 1))
        )
        y = y + torch.column_stack([x, x])[:, :4] + torch.concatenate([x, x], 2)[..., :4]
        return y + meshed + x.split([1, 3], 1)[0] + torch.broadcast_to(x[:, :1], x.shape)

    return Applied(forward), rows(4, 4)


def reductions() -> Made:
    return (
        Applied(
            all_of(
                lambda x: x.mean(1), lambda x: x.sum(1), lambda x: x.amax(1), lambda x: x.amin(1),
                lambda x: x.max(1)[0], lambda x: x.min(1)[0], lambda x: x.std(1),
                lambda x: x.var(1), lambda x: x.norm(dim=1), lambda x: x.prod(1),
                lambda x: x.cumsum(1), lambda x: x.cumprod(1), lambda x: x.logsumexp(1),
                lambda x: x.argmax(1), lambda x: x.argmin(1), lambda x: x.median(1)[0],
                lambda x: x.topk(2, 1)[0], lambda x: x.sort(1)[0], lambda x: x.argsort(1),
                lambda x: torch.linalg.vector_norm(x, dim=1), lambda x: (x > 0.5).any(1),
                lambda x: (x > 0.5).all(1), lambda x: torch.std_mean(x, 1)[0],
                lambda x: torch.var_mean(x, 1)[0], lambda x: x.kthvalue(2, 1)[0],
                lambda x: x.cummax(1)[0], lambda x: torch.aminmax(x, dim=1)[0],
                lambda x: torch.count_nonzero(x, 1), lambda x: x.nansum(1),
                lambda x: x.diff(dim=1), lambda x: x.logcumsumexp(1), lambda x: x.nanmean(1),
                lambda x: x.std(1, correction=0), lambda x: x.var(1, correction=0),
                lambda x: torch.std_mean(x, 1, correction=0)[0], lambda x: x.std(1, False),
                lambda x: torch.var_mean(x, 1, correction=0)[0], lambda x: x.mean((1, 2)),
                lambda x: (x > 0.5).all() * x, lambda x: (x > 0.5).any() * x,
                lambda x: x.max() + x * 0, lambda x: x.min() + x * 0, lambda x: x.sum() + x * 0,
                lambda x: x.std() + x, lambda x: x.var() + x, lambda x: x.norm() + x,
                lambda x: x.median() + x, lambda x: (x > 0.5).all((1, 2)), lambda x: x.prod() + x,
                lambda x: x.numel() * x, lambda x: torch.norm(x, 2, (1, 2)),
                lambda x: torch.linalg.norm(x, dim=(1, 2)), lambda x: x.cummin(1)[0],
                lambda x: x.nanmedian(1)[0], lambda x: x.mode(1)[0], lambda x: x.max(1).indices,
                lambda x: torch.quantile(x, 0.5, 1), lambda x: torch.trapezoid(x, dim=1),
            )
        ),
        rows(4, 4),
    )  # fmt: skip


def indexing() -> Made:
    def forward(x: Any) -> Any:
        first = x[:, :1].long()
        y = x.gather(1, first) + x[:, [0, 2]].sum(1)[:, None]
        y = y + torch.where(x > 0.5, x, 0.0) + x.index_select(1, torch.tensor([1]))
        y = y + x.scatter(1, first, 1.0) + x.scatter(1, first, x[:, 1:2])
        y = y + x.scatter_add(1, first, x[:, :1]) + x.masked_fill(x > 0.5, 0.0)
        y = y + x.index_fill(1, torch.tensor([1]), 0.0)
        z = x.clone()
        z[:, 0] = 0.0
        z[:, 1:3] += 1.0
        z[z > 0.9] = 0.9
        return (
            y
            + z
            + torch.bucketize(x, torch.tensor([0.2, 0.5]))
            + x.index_add(1, torch.tensor([1]), x[:, :1])
            + x.masked_fill(x > 0.5, torch.tensor(0.0))
            + torch.where(x > 0.5, 1.0, x)
            + (torch.where(x > 0.5, 1.0, 0.0) + torch.searchsorted(torch.tensor([0.2, 0.5]), x))
            + x.index_copy(1, torch.tensor([1]), x[:, :1])
            + torch.isin(x, torch.tensor([0.5]))
            + (x.scatter_reduce(1, first, x[:, :1], "amax") + x.select_scatter(x[:, 0], 1, 1))
            + x.slice_scatter(x[:, :1], 1, 0, 1)
            + x.take(torch.tensor([0]))
            + torch.nonzero(torch.ones(4)).sum()
            + x.masked_scatter(x > 0.5, x)
        )

    return Applied(forward), rows(4)


def of_half(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x * 0.5)


def of_two(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x, x + 1)


def arithmetic() -> Made:
    unary = [
        "exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "tan", "tanh", "erf", "erfc",
        "floor", "ceil", "round", "trunc", "log1p", "expm1", "reciprocal", "square", "sign",
        "neg", "frac", "isnan", "isinf", "isfinite", "logical_not", "log2", "log10", "sinh",
        "cosh", "asin", "acos", "atan", "asinh", "atanh", "deg2rad", "rad2deg", "sigmoid",
        "exp2", "sgn", "nan_to_num", "digamma", "lgamma", "erfinv", "positive",
    ]  # fmt: skip
    binary = [
        "add", "sub", "mul", "div", "pow", "maximum", "minimum", "atan2", "hypot",
        "logaddexp", "fmod", "remainder", "floor_divide", "eq", "ne", "lt", "le", "gt",
        "ge", "logical_and", "logical_or", "logical_xor", "fmax", "fmin", "true_divide",
        "xlogy",
    ]  # fmt: skip
    return (
        Applied(
            all_of(
                *(of_half(getattr(torch, name)) for name in unary),
                *(of_two(getattr(torch, name)) for name in binary),
                lambda x: 1 / x + 2 - x + x**2 + x**0.5 + 2**x + x // 2 + x % 2 + -x,
                lambda x: x.clamp(0, 1) + x.clamp(min=0.1) + x.clamp(max=0.5) + x.clip(0, 1),
                lambda x: torch.lerp(x, x, 0.5) + torch.addcmul(x, x, x) + torch.addcdiv(x, x, x),
                lambda x: torch.rsub(x, 1) + torch.heaviside(x, x) + torch.special.entr(x),
                lambda x: (x > 0.5) & (x < 0.8) | ~(x == 0.6) ^ (x >= 0.3),
                lambda x: torch.lerp(x, x, x) + torch.clamp(x, x, x + 1) + (-x).relu(),
                lambda x: torch.floor_divide(x, 2) + torch.pow(2, x) + torch.remainder(2, x),
                lambda x: torch.div(x, x, rounding_mode="floor") + torch.add(x, x, alpha=2),
                lambda x: torch.div(x, 2, rounding_mode="trunc") + torch.logit(x, 1e-3),
                lambda x: torch.ldexp(x, x) + torch.copysign(x, -x) + torch.sinc(x) + x.sigmoid(),
                lambda x: torch.xlogy(x, x) + torch.special.i0(x) + torch.special.log_ndtr(x),
                lambda x: torch.logaddexp2(x, x) + torch.bitwise_left_shift(x.int(), 1),
                lambda x: torch.gcd(x.int(), x.int()) + torch.bitwise_not(x.int()),
                lambda x: torch.nextafter(x, x) + torch.signbit(x) + torch.isclose(x, x),
                lambda x: x.int() & 1 | x.int() << 1 ^ x.int() >> 1,
                lambda x: x.clone().add_(1).mul_(2).sub_(1).div_(2).clamp_(0, 1).pow_(2),
            )
        ),
        rows(4),
    )


def products() -> Made:
    return (
        Applied(
            all_of(
                lambda x: torch.einsum("bij,bkj->bik", x, x), lambda x: x @ x,
                lambda x: torch.baddbmm(x, x, x), lambda x: torch.bmm(x, x),
                lambda x: torch.matmul(x, x[0, 0]), lambda x: torch.addmm(x[:, 0], x[:, 1], x[0]),
                lambda x: torch.mm(x[:, 0], x[0]), lambda x: torch.tensordot(x, x[0], 1),
                lambda x: F.cosine_similarity(x, x + 1, 1), lambda x: F.pairwise_distance(x, x),
                lambda x: torch.cdist(x, x), lambda x: torch.linalg.inv(x + 9 * torch.eye(4)),
                lambda x: torch.linalg.solve(x + 9 * torch.eye(4), x), lambda x: torch.cross(
                    x[..., :3], x[..., 1:], -1),
                lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4)),
                lambda x: torch.fft.rfft(x).abs(), lambda x: torch.fft.fft(x).real,
                lambda x: torch.fft.ifft(x).real, lambda x: torch.fft.rfft2(x).abs(),
                lambda x: torch.fft.irfft2(torch.fft.rfft2(x)), torch.fft.fftshift,
                lambda x: torch.mv(x[0], x[0, 0]) + x, lambda x: torch.dot(x[0, 0], x[0, 0]) + x,
                torch.linalg.matrix_norm, torch.linalg.det,
                torch.linalg.pinv, lambda x: torch.chain_matmul(x[0], x[0]) + x,
                lambda x: torch.kron(x[0], x[0]).sum() + x, lambda x: torch.inner(x, x[0]),
                lambda x: torch.fft.irfft(torch.fft.rfft(x)), lambda x: torch.fft.fft2(x).imag,
                lambda x: F.bilinear(x[:, 0], x[:, 1], torch.ones(2, 4, 4)),
                lambda x: F.linear(x, torch.ones(2, 4)),
            )
        ),
        rows(4, 4),
    )  # fmt: skip


def made_on_the_way() -> Made:
    def forward(x: Any) -> Any:
        y = x.new_zeros(x.shape) + x.new_full((4,), 2.0) + torch.zeros_like(x) + torch.ones(4)
        y = y + torch.eye(4)[0] + torch.linspace(0, 1, 4) + torch.arange(4) + x.new_ones(4)
        y = y + torch.full((4,), 1.0) + torch.ones_like(x) + torch.full_like(x, 2.0)
        y = y + torch.arange(0, 8, 2) + torch.arange(1, 5) + torch.zeros(4) + torch.tensor(1.0)
        y = y + torch.tril(x[:, :, None])[..., 0] + torch.tensor([1.0, 2.0, 3.0, 4.0])
        y = y + torch.as_tensor(2.0) + torch.logspace(0, 1, 4) + torch.hann_window(4)
        return y + torch.outer(torch.arange(2.0), torch.ones(4))[0] + torch.scalar_tensor(1.0)

    return Applied(forward), rows(4)


def set_before_use() -> Made:
    """Memory that is asked for without values, and then filled."""

    def forward(x: Any) -> Any:
        y = x.new_empty(x.shape).fill_(1) + torch.empty_like(x).zero_()
        held = torch.empty(x.shape[0], 4)
        held[:, :2] = x[:, :2]
        held[:, 2:] = 0.0
        return y + held + torch.empty(4).copy_(torch.ones(4))

    return Applied(forward), rows(4)


def types() -> Made:
    return (
        Applied(
            all_of(
                lambda x: x.half().float(), lambda x: x.to(torch.float64), lambda x: x.int(),
                lambda x: x.bool(), lambda x: x.type_as(x.double()), lambda x: x.detach(),
                lambda x: x.bfloat16(), lambda x: x.long(), lambda x: x.to(x.device),
                lambda x: x.to("cpu", torch.float16), lambda x: x.to(x.double()),
                lambda x: torch.complex(x, x).abs(), lambda x: torch.view_as_complex(
                    torch.stack([x, x], -1)).real, lambda x: torch.polar(x, x).angle(),
                lambda x: x.is_floating_point() * x,
            )
        ),
        rows(4),
    )  # fmt: skip


MODULES: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        convolutional, other_convolutions, activations, learned_activation, encoder, decoder,
        attention, cells, embeddings, normalisations, resizing, pools, paddings, shapes,
        reductions, indexing, arithmetic, products, made_on_the_way, set_before_use, types,
    )
} | {
    "long_short_term_memory": recurrent(nn.LSTM),
    "gated_recurrent": recurrent(nn.GRU),
    "elman": recurrent(nn.RNN),
    "elman_with_relu": recurrent(lambda *sizes, **how: nn.RNN(*sizes, nonlinearity="relu", **how)),
}  # fmt: skip

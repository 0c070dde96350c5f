# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import cache, partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt import encoder
from kvnmt.encoder import CellName, Choices, Encoded, Merge
from kvnmt.errors import OptionError, UserError
from kvnmt.fields import check_used
from kvnmt.initializers import gaussian
from kvnmt.layers import Blocks, Residuals, Scanning, linear
from kvnmt.model.config import ModelConfig
from kvnmt.typing import Sizes

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
MERGES = [merge for merge in get_args(Merge) if merge != "none"]
# Every merge, every cell and a second layer, in the fewest programs.
KINDS = [(merge, "gru", 1) for merge in MERGES] + [
    ("concat", "gru_before", 1),
    ("concat", "lstm", 1),
    ("stack", "lstm", 2),
    ("forward", "transformer", 2),
]
H = 4


def sizes(merge: Merge) -> Sizes:
    C = encoder.annotation_size(merge, H)
    return Sizes(embedding=2, encoder=H, annotation=C, state=5, alignment=6)


def choices(merge: Merge, cell: CellName = "gru", layers: int = 1) -> Choices:
    return Choices(merge, cell, layers, Blocks())


@cache
def encoder_of(kind: tuple) -> Callable[..., Encoded]:
    merge = kind[0]
    key = jax.random.key(0)
    params = encoder.init(choices(*kind), key, sizes(merge), gaussian(1.0))
    params = jax.tree.map(lambda x: x + 0.1, params)  # biases too
    return jax.jit(
        lambda x: encoder.encode(
            choices(*kind), params, sizes(merge), x, jnp.asarray(MASK)
        )
    )


def encode(kind: tuple, embedded: np.ndarray) -> np.ndarray:
    return np.asarray(encoder_of(kind)(embedded.astype(np.float32)).annotations)


def words() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1, (3, 4, 2))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_padding_gives_zero_and_is_never_read(kind):
    want = encode(kind, words())
    assert want.shape == (3, 4, encoder.annotation_size(kind[0], H))
    assert (want[~MASK] == 0).all() and (want[MASK] != 0).all()
    other = np.where(MASK[..., None], words(), 1e3)
    np.testing.assert_array_equal(encode(kind, other), want)


@pytest.mark.parametrize("drops", [0.0, 0.4])
@pytest.mark.parametrize(
    "kind", [("concat", "lstm", 2), ("halves", "gru", 1), ("stack", "gru", 1)], ids=str
)
def test_one_scan_of_both_directions_reads_as_two_do(kind, drops, x64):
    """With all gradients. Two are left if one reads the other, or layers drop out."""
    config = choices(*kind)._replace(dropout=drops, residual=True)
    weights = gaussian(1.0)._replace(gain=1.0)  # normalised, too
    made = encoder.init(config, jax.random.key(0), sizes(kind[0]), weights)
    params = jax.tree.map(lambda x: x + 0.1, made)

    X = jnp.asarray(words())

    def total(params: object, x: jax.Array, scanning: Scanning) -> jax.Array:
        key = jax.random.split(jax.random.key(1), 3)
        some = sizes(kind[0]), x, jnp.asarray(MASK), scanning, key
        read = encoder.encode(config, params, *some)
        return jnp.sum(jnp.sin(read.annotations)) + jnp.sum(read.backward_first**2)

    both = jax.jit(jax.value_and_grad(total, argnums=(0, 1)), static_argnums=2)
    apart, once = (both(params, X, Scanning(joined=joined)) for joined in (False, True))
    for one, other in zip(*map(jax.tree.leaves, (apart, once)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    traced = (
        str(jax.make_jaxpr(partial(total, scanning=Scanning(joined=m)))(params, X))
        for m in (False, True)
    )
    apart, once = (text.count("scan[") for text in traced)
    is_one = kind[0] != "stack" and not (drops and kind[2] > 1)
    assert apart == 2 * kind[2] and once == apart // (1 + is_one)


@pytest.mark.parametrize("joined", [False, True])
def test_no_product_is_computed_again_for_the_gradient(joined):
    """Whatever is kept of the decoder's: those of the encoder are small."""
    kind, X = ("concat", "gru", 1), jnp.asarray(words(), jnp.float32)
    params = encoder.init(
        choices(*kind), jax.random.key(0), sizes("concat"), gaussian()
    )

    def total(x: jax.Array, residuals: Residuals) -> jax.Array:
        some = sizes("concat"), x, jnp.asarray(MASK), Scanning(residuals, joined=joined)
        return jnp.sum(encoder.encode(choices(*kind), params, *some).annotations)

    products, vectors = (
        str(jax.make_jaxpr(jax.grad(partial(total, residuals=kept)))(X))
        for kept in get_args(Residuals)
    )
    assert products.count("dot_general") == vectors.count("dot_general") > 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_annotation_knows_the_whole_sentence(kind):
    """But for recurrent layers in one direction, which know what came before."""
    want = encode(kind, words())
    for place in range(4):
        other = words()
        other[0, place] += 1
        moved = np.any(encode(kind, other) != want, axis=-1)
        before = kind == ("forward", "gru", 1)
        expected = [j >= place or not before for j in range(4)]
        np.testing.assert_array_equal(moved[0], expected)
        assert not moved[1:].any()


@pytest.mark.parametrize("cell", ["gru", "gru_before", "lstm"])
def test_concat_holds_the_forward_states_first(cell):
    want = encode(("concat", cell, 1), words())
    other = words()
    other[0, 3] += 1  # the last word
    got = encode(("concat", cell, 1), other)
    np.testing.assert_array_equal(got[0, :3, :H], want[0, :3, :H])  # not read yet
    assert (got[0, :, H:] != want[0, :, H:]).all()
    first = encoder_of(("concat", cell, 1))(words().astype(np.float32)).backward_first
    np.testing.assert_array_equal(first, want[:, 0, H:])


def test_projections_of_both_directions():
    """``halves``: a key from the first halves of both, a value from the second."""
    x, mask = jnp.asarray(words(), jnp.float32), jnp.asarray(MASK)

    def of(merge: Merge) -> tuple[encoder.Params, np.ndarray, list[np.ndarray]]:
        key = jax.random.key(0)
        params = encoder.init(choices(merge), key, sizes(merge), gaussian(1.0))
        params = jax.tree.map(lambda x: x + 0.1, params)
        both = encoder.encode(
            choices("concat"), params, sizes("concat"), x, mask
        ).annotations
        got = encoder.encode(choices(merge), params, sizes(merge), x, mask).annotations
        return params, np.asarray(got)[MASK], np.split(np.asarray(both)[MASK], 4, -1)

    params, got, (kf, vf, kb, vb) = of("halves")
    keys, values = params.project
    want = [linear(keys, kf, kb), linear(values, vf, vb)]
    np.testing.assert_allclose(got, np.concatenate(want, axis=-1), rtol=1e-4)
    params, got, (kf, vf, kb, vb) = of("project")
    f, b = np.concatenate([kf, vf], -1), np.concatenate([kb, vb], -1)
    np.testing.assert_allclose(got, linear(params.project[0], f, b), rtol=1e-4)


def test_halves_of_an_odd_size():
    odd = sizes("halves")._replace(encoder=3)
    with pytest.raises(UserError, match="even encoder size, not 3"):
        encoder.init(choices("halves"), jax.random.key(0), odd, gaussian())


def test_no_encoder_has_no_parameters_and_annotations_of_no_width():
    key = jax.random.key(0)
    params = encoder.init(choices("none"), key, sizes("none"), gaussian())
    assert jax.tree.leaves(params) == []
    x = jnp.zeros((3, 4, 0))
    got = encoder.encode(choices("none"), params, sizes("none"), x, jnp.asarray(MASK))
    assert got.annotations.shape == (3, 4, 0) and got.mask.shape == (3, 4)


@pytest.mark.parametrize("cell", sorted({*get_args(CellName)} - {"transformer"}))
def test_options_of_transformer_layers_do_nothing_in_recurrent_ones(cell):
    config = ModelConfig(cell=cell, blocks=Blocks(heads=8))
    with pytest.raises(OptionError, match=f"does nothing while .*cell is {cell}"):
        check_used(config, ModelConfig())


def test_a_cell_says_whether_it_recurs(monkeypatch):
    assert ModelConfig(cell="lstm").encoder_recurs
    assert not ModelConfig(cell="transformer").encoder_recurs
    other = encoder.CELLS["lstm"]._replace(recurs=False)
    monkeypatch.setitem(encoder.CELLS, "lstm", other)
    assert not ModelConfig(cell="lstm").encoder_recurs


def test_transformer_layers_make_one_stack_and_their_heads_share_its_width():
    key = jax.random.key(0)
    with pytest.raises(UserError, match="one stack; set merge forward"):
        encoder.init(choices("sum", "transformer"), key, sizes("sum"), gaussian())
    three = Choices("forward", "transformer", 1, Blocks(heads=3))
    with pytest.raises(UserError, match="3 heads .* width of 4 .* blocks.heads"):
        encoder.init(three, key, sizes("forward"), gaussian())

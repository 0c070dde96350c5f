# SPDX-License-Identifier: Apache-2.0
"""The few words that a beam asks for are those of the whole distribution."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvnmt.search import Words, normalise, words

ROWS, BEAM, WORDS = 3, 2, 6
EOS, UNK = 0, 1


def some(barred: bool, forced: bool, ties: bool) -> Words:
    """Logits of small whole numbers have ties in every row."""
    random = np.random.default_rng(3)
    logits = jnp.asarray(random.normal(0, 2, (ROWS, BEAM, WORDS)))
    logits = jnp.round(logits) + 0.0 if ties else logits  # no -0.0, which ranks below
    peaks, totals = normalise(logits)
    return Words(
        logits=logits,
        peaks=peaks,
        totals=totals,
        barred=jnp.asarray([[True, True], [False, True], [False, False]])
        if barred
        else None,
        barred_ids=(EOS, UNK) if barred else (),
        forced=jnp.asarray([-1, UNK, 2]) if forced else None,
    )


def test_the_total_is_the_same_by_a_product():
    mass = jax.device_put(np.random.default_rng(3).random((ROWS, BEAM, 300)))
    totals = words._total(mass), words._total_by_product(mass)
    np.testing.assert_allclose(*totals, rtol=1e-5)


def test_the_product_is_as_exact_as_jax_is_told():
    """In all bits, it would take a third of a step of a TPU's search."""
    mass = jnp.ones((ROWS, BEAM, 300))
    plain = str(jax.make_jaxpr(words._total_by_product)(mass))
    assert "dot_general" in plain and "precision" not in plain
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in str(jax.make_jaxpr(words._total_by_product)(mass))


CASES = [*itertools.product([False, True], repeat=3)]


@pytest.mark.parametrize(("barred", "forced", "ties"), CASES)
def test_what_may_not_be_written_has_no_probability(barred, forced, ties):
    these = some(barred, forced, ties)
    plain = np.asarray(jax.nn.log_softmax(these.logits))
    for row, hypothesis, word in np.ndindex(ROWS, BEAM, WORDS):
        allowed = True
        if barred and word in (EOS, UNK):
            allowed = not bool(these.barred[row, (EOS, UNK).index(word)])
        if forced and int(these.forced[row]) >= 0:
            allowed = int(these.forced[row]) == word
        want = plain[row, hypothesis, word] if allowed else -np.inf
        got = these.log_probs[row, hypothesis, word]
        np.testing.assert_allclose(got, want, rtol=1e-5)
        np.testing.assert_allclose(these.of(word)[row, hypothesis], got, rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 4, WORDS])
@pytest.mark.parametrize(("barred", "forced", "ties"), CASES)
def test_the_best_are_the_best_of_all(count, barred, forced, ties):
    """Words with a smaller id win ties, as in a sort that keeps their order."""
    these = some(barred, forced, ties)
    values, ids = these.best(count, without=EOS)
    every = np.asarray(these.log_probs).copy()
    every[..., EOS] = -np.inf
    order = np.argsort(-every, axis=-1, kind="stable")[..., :count]
    want = np.take_along_axis(every, order, axis=-1)
    np.testing.assert_allclose(values, want, rtol=1e-5)
    real = np.isfinite(want)
    np.testing.assert_array_equal(np.asarray(ids)[real], order[real])

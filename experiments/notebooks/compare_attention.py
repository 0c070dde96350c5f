# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Comparing kinds of attention
#
# <!-- SPDX-License-Identifier: Apache-2.0 -->
#
# Every kind of attention in `kvnmt.attention.CATALOGUE` is a tuple of pure functions.
# This notebook asks all of them the same query, steps through three of them by hand,
# shows a law that all but one of four keep, and trains four systems on a made-up
# language. It needs no data and no network, and a minute or two on two cores.

# %%
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import random

import kvnmt
from kvnmt.attention import CATALOGUE, Attention, Moment
from kvnmt.data import synthetic
from kvnmt.initializers import gaussian
from kvnmt.model.config import Dropout
from kvnmt.typing import Sizes

SMALL = bool(os.environ.get("KVNMT_SMALL"))  # a trial run of this notebook

# %% [markdown]
# ## All of them on one query
#
# A sentence of six source words, as an encoder might see it, and one decoder state that
# asks three times. `prepare` computes what is constant for the sentence, `read` looks,
# `write` changes what is carried to the next word.

# %%
SOURCE = ["the", "dogs", "chased", "a", "hat", "</s>"]
SIZES = Sizes(embedding=8, encoder=8, annotation=12, state=12, alignment=10)

annotations = random.normal(random.key(0), (1, len(SOURCE), SIZES.annotation))
mask = jnp.ones((1, len(SOURCE)), bool)
query = random.normal(random.key(1), (1, SIZES.state))
moment = Moment(previous_state=query, embedded=query[:, :8], query=query)


def prepared(attention: Attention, annotations=annotations):
    """Parameters, what is constant for the sentence, and what is carried."""
    params = attention.init(random.key(2), SIZES, gaussian(0.5))
    source = attention.prepare(params, annotations, mask)
    return params, source, attention.initial_state(params, source)


def three_looks(attention: Attention, annotations=annotations) -> np.ndarray:
    """The alignments of three target words: a row for each, a column a source word."""
    params, source, state = prepared(attention, annotations)
    rows = []
    for _ in range(3):
        attended = attention.read(params, source, state, moment)
        after = moment.replace(decoder_state=query, attended=attended)
        if attention.write is not None:
            state = attention.write(params, source, state, after)
        rows.append(attended.alignment[0])
    return np.stack(rows)


UPDATES = "sum", "decay", "gated", "delta", "gated_delta", "kda", "gated_delta_2"
FAMILIES = {"delta_memory": ("update", UPDATES), "slots": ("gate", ("gsa", "abc"))}
looks = {}
for name, mechanism in CATALOGUE.items():
    if name in FAMILIES:
        field, values = FAMILIES[name]
        for value in values:
            options = mechanism.Options(**{field: value}, write="decoder")
            looks[value] = three_looks(mechanism.build(options))
    elif name != "none":  # it has one context for all words, and no alignment
        looks[name] = three_looks(mechanism.build(mechanism.Options()))

# %% [markdown]
# Each panel is one mechanism; a row is a target word, a column a source word. Additive,
# dot, multi-head and key-value attention and `modifying_iw` carry nothing: they answer
# three times the same. Coverage, distortion and the key memory remember having been
# asked. The last nine are its modern relatives, seven linear memories and two kinds of
# slots: filled with the sentence, then written by the decoder after each look, as the
# key memory is. Their weights are worked out, as shares: what `sum` adds and what
# `decay` fades alike changes none. `linear_memory` shows which are negative.

# %%
figure, panels = plt.subplots(4, 5, figsize=(12, 8.2), layout="constrained")
most = max(weights.max() for weights in looks.values())
for panel, (name, weights) in zip(panels.flat, looks.items()):
    image = panel.imshow(weights, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    panel.set_title(name, fontsize=10)
    panel.set_xticks(range(len(SOURCE)), SOURCE, rotation=90)
    panel.set_yticks(range(3), ["1st", "2nd", "3rd"])
for panel in panels.flat[len(looks) :]:
    panel.set_axis_off()
figure.supylabel("target word"), figure.supxlabel("source word")
bar = figure.colorbar(image, ax=panels, label="weight")

# %% [markdown]
# ## Three of them by hand
#
# ### Additive attention (Bahdanau et al. 2015)
#
# $e_j = v \cdot \tanh(W q + U h_j + b)$, $\quad a = \mathrm{softmax}(e)$,
# $\quad c = \sum_j a_j h_j$
#
# Nothing is written. Matrices are stored input first, so `q @ W` is the paper's $W q$.


# %%
def additive_energies(address, query, keys, more=0.0):
    """One energy for each source word."""
    hidden = query @ address.W_query + keys @ address.U_key + address.b + more
    return jnp.tanh(hidden) @ address.v_energy


additive = CATALOGUE["additive"].build(CATALOGUE["additive"].Options())
params, source, state = prepared(additive)
energies = additive_energies(params.address, query[0], annotations[0])
alignment = jax.nn.softmax(energies)
context = alignment @ annotations[0]
attended = additive.read(params, source, state, moment)
np.testing.assert_allclose(attended.alignment[0], alignment, atol=1e-6)
np.testing.assert_allclose(attended.context[0], context, atol=1e-5)


def show(**rows) -> None:
    """Prints a number for each source word."""
    print(" " * 10, *(f"{word:>8}" for word in SOURCE))
    for name, values in rows.items():
        print(f"{name:10}", *(f"{value:8.3f}" for value in values))


show(energy=energies, alignment=alignment)

# %% [markdown]
# ### Coverage (Tu et al. 2016)
#
# The energy also sees how much attention a word has had:
# $e_j = v \cdot \tanh(W q + U h_j + G\,\mathit{cov}_j + b)$. A write books what was
# read: $\mathit{cov}_j \leftarrow \mathit{cov}_j + a_j$.

# %%
linguistic = CATALOGUE["linguistic_coverage"]
coverage = linguistic.build(linguistic.Options())
params, source, state = prepared(coverage)
covered = jnp.zeros(len(SOURCE))
for word in ("first", "second"):
    seen = covered[:, None] @ params.G
    energies = additive_energies(params.address, query[0], annotations[0], seen)
    alignment = jax.nn.softmax(energies)
    attended = coverage.read(params, source, state, moment)
    np.testing.assert_allclose(attended.alignment[0], alignment, atol=1e-6)
    state = coverage.write(params, source, state, moment.replace(attended=attended))
    covered = covered + alignment
    np.testing.assert_allclose(state.coverage[0, :, 0], covered, atol=1e-6)
    print(f"{word} word")
    show(energy=energies, alignment=alignment, covered=covered)

# %% [markdown]
# ### The key memory (Meng et al. 2018)
#
# The keys start as the annotations; the values stay. The query reads as in additive
# attention. Then the new decoder state $s$ addresses the keys with other parameters,
# and rewrites them:
#
# $k_j \leftarrow k_j (1 - w_j F) + w_j A$, with $F = \sigma(W_F s + b_F)$ and
# $A = \sigma(W_A s + b_A)$.

# %%
kv_memory = CATALOGUE["kv_memory"].build(CATALOGUE["kv_memory"].Options())
params, source, state = prepared(kv_memory)
keys = annotations[0]
new_state = random.normal(random.key(3), (1, SIZES.state))
forget = jax.nn.sigmoid(new_state[0] @ params.forget.W[0] + params.forget.b)
add = jax.nn.sigmoid(new_state[0] @ params.add.W[0] + params.add.b)
for word in ("first", "second"):
    energies = additive_energies(params.address, query[0], keys)
    alignment = jax.nn.softmax(energies)
    addressed = additive_energies(params.write_address, new_state[0], keys)
    written = jax.nn.softmax(addressed)
    keys = keys * (1 - written[:, None] * forget) + written[:, None] * add
    attended = kv_memory.read(params, source, state, moment)
    after = moment.replace(decoder_state=new_state, attended=attended)
    state = kv_memory.write(params, source, state, after)
    np.testing.assert_allclose(attended.alignment[0], alignment, atol=1e-5)
    np.testing.assert_allclose(state.keys[0], keys, atol=1e-5)
    print(f"{word} word")
    show(energy=energies, alignment=alignment, written=written)

# %% [markdown]
# ## A law
#
# Additive attention knows no order: source words in another order are read the same,
# their weights in that order. Distortion moves the last alignment along the source, so
# it does know.

# %%
order = np.array([3, 0, 5, 4, 2, 1])
for name in ("additive", "linguistic_coverage", "kv_memory", "distortion"):
    attention = CATALOGUE[name].build(CATALOGUE[name].Options())
    plain = three_looks(attention)[1]  # the first look is behind what is carried
    moved = three_looks(attention, annotations[:, order])[1]
    apart = np.abs(moved - plain[order]).max()
    print(f"{name:20} {apart:.1e}  {'same' if apart < 1e-5 else 'knows the order'}")
    assert (apart < 1e-5) == (name != "distortion")

# %% [markdown]
# Padding is the other trap: whatever lies there is never read. `kvnmt.check` tries
# these and more laws on small random numbers; the test suite runs the same ones.

# %%
kvnmt.check(CATALOGUE["kv_memory"])

# %% [markdown]
# ## Four systems learn
#
# The made-up language has a small grammar and gold word alignments. To be quick we keep
# its short sentences, and train small models. A run directory keeps what every
# validation measured in `metrics.jsonl`.

# %%
PAIRS, LONGEST, UNITS, EPOCHS = (60, 12, 8, 1) if SMALL else (4000, 9, 48, 12)

folder = Path(tempfile.mkdtemp(prefix="kvnmt-"))
corpus = synthetic.make_corpus(seed=1, train=PAIRS, valid=PAIRS // 10, test=10)
parts = {
    part: tuple(pair for pair in pairs if len(pair.source) <= LONGEST)
    for part, pairs in vars(corpus).items()
}
synthetic.write_corpus(synthetic.Corpus(**parts), folder / "text")
print(" ".join(parts["valid"][0].source), "->", " ".join(parts["valid"][0].target))

# %%
SYSTEMS = ("rnnencdec", "rnnsearch-star", "coverage-linguistic", "kvmematt-r1")
SYSTEMS = SYSTEMS[:2] if SMALL else SYSTEMS

data = kvnmt.DataConfig(
    source=folder / "text/train.src",
    target=folder / "text/train.trg",
    valid_source=folder / "text/valid.src",
    valid_target=folder / "text/valid.trg",
    min_count=1,
)
sizes = kvnmt.ModelConfig(
    embedding=UNITS,
    encoder=UNITS,
    state=UNITS,
    merge="sum",
    initializer="unit",
    dropout=Dropout(output=0.1),
)
training = kvnmt.TrainingConfig(
    epochs=EPOCHS, batch_size=40, shapes=1, bleu_tokenize="none"
)
curves = {}
for name in SYSTEMS:
    experiment = replace(
        kvnmt.experiment(name, data, sizes, recipe="papers"),
        optimizer=kvnmt.OptimizerConfig(learning_rate=3e-3),
        training=training,
    )
    kvnmt.train(experiment, folder / name)
    with (folder / name / "metrics.jsonl").open() as lines:
        curves[name] = list(map(json.loads, lines))

# %%
figure, (losses, scores) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, records in curves.items():
    steps = [record["step"] for record in records]
    losses.plot(steps, [record["valid_loss"] for record in records], label=name)
    scores.plot(steps, [record["valid_bleu"] for record in records], label=name)
losses.set_ylabel("validation loss (nats per target token)")
scores.set_ylabel("validation BLEU")
for panel in (losses, scores):
    panel.set_xlabel("step")
legend = scores.legend(frameon=False)

# %% [markdown]
# Small models and short sentences say little about which system is better;
# `experiments/findings/papers.md` has the tables of the papers. `key_memory` looks
# into a trained key memory, `linear_memory` at the weights of memories without a
# softmax, `your_own_mechanism` adds a new kind of attention.

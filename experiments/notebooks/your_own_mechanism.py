# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # An attention of your own
#
# <!-- SPDX-License-Identifier: Apache-2.0 -->
#
# A new kind of attention in twenty lines: written, checked against the laws that all
# others keep, trained beside two of them, and put in a table. It needs no data and no
# network, and takes a minute or two on two cores.

# %%
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
from flax import struct

import kvnmt
from experiments.parts import made_up
from kvnmt.attention import CATALOGUE, Attended, Attention, base
from kvnmt.attention.address import (
    Address,
    energies,
    init_address,
    prepare,
    read_values,
)
from kvnmt.data import synthetic
from kvnmt.layers import masked_softmax
from kvnmt.model.config import Dropout

SMALL = bool(os.environ.get("KVNMT_SMALL"))  # a trial run of this notebook

# %% [markdown]
# ## The idea: inertia
#
# Additive attention does not know where it looked last. Let the query say how much it
# wants to stay there, or to move away:
#
# $e_j = v \cdot \tanh(W q + U h_j + b) + (p \cdot q)\, a'_j$
#
# Here $a'$ is the alignment of the word before.
#
# A mechanism has static `Options`, trained parameters, a Source that is constant for a
# sentence (here the one that additive attention prepares), and a State that is carried
# from word to word (here the last alignment). That is all of it:


# %%
@dataclass(frozen=True)
class Options(base.Options):
    """Inertia has no static choices."""


@struct.dataclass
class Params:
    """The address of additive attention, and how a query asks to stay."""

    address: Address
    stay: jax.Array  # [D]


def init(key, sizes, weights):
    """Makes the parameters of one round."""
    widths = (sizes.state, sizes.annotation, sizes.alignment)
    return Params(init_address(key, *widths, weights), jnp.zeros(sizes.state))


def read(params, source, last, moment):
    """Looks at the source, with the last alignment in mind."""
    query = moment.query @ params.address.W_query
    content = energies(params.address.v_energy, query, source.projected_keys)
    stay = (moment.query @ params.stay)[:, None]
    alignment = masked_softmax(content + stay * last, source.mask)
    return Attended(read_values(alignment, source.annotations), alignment)


def build(options):
    """Inertia under the contract."""
    return Attention(
        init=init,
        prepare=prepare,
        read=read,
        initial_state=lambda params, source: jnp.zeros_like(source.annotations[..., 0]),
        write=lambda params, source, last, moment: moment.attended.alignment,
    )


inertia = SimpleNamespace(Options=Options, build=build)  # or a module with both names

# %% [markdown]
# ## Does it keep the laws?
#
# `kvnmt.check` tries what the test suite tries for every attention, on small random
# numbers.

# %%
verdicts = kvnmt.check(inertia)
assert verdicts.hold
verdicts

# %% [markdown]
# What if the mask had been forgotten? The report says what goes wrong: padding is read,
# and longer neighbours in a batch change a translation.


# %%
def careless_read(params, source, last, moment):
    """As above, but without the mask."""
    query = moment.query @ params.address.W_query
    content = energies(params.address.v_energy, query, source.projected_keys)
    stay = (moment.query @ params.stay)[:, None]
    alignment = jax.nn.softmax(content + stay * last)
    return Attended(read_values(alignment, source.annotations), alignment)


careless = kvnmt.check(build(Options())._replace(read=careless_read))
assert "padding" in careless.failed
careless

# %% [markdown]
# ## Train it beside others
#
# Listed in the catalogue, it works with every decoder, search and measure, and its
# options can be kept in a run directory.

# %%
if "inertia" in CATALOGUE:  # this cell has been run before
    CATALOGUE.remove("inertia")
CATALOGUE.add("inertia", inertia)

PAIRS, LONGEST, UNITS, EPOCHS = (60, 12, 8, 1) if SMALL else (6000, 9, 48, 12)

folder = Path(tempfile.mkdtemp(prefix="kvnmt-"))
corpus = synthetic.make_corpus(seed=1, train=PAIRS, valid=PAIRS // 10, test=PAIRS // 10)
parts = {
    part: tuple(pair for pair in pairs if len(pair.source) <= LONGEST)
    for part, pairs in vars(corpus).items()
}
synthetic.write_corpus(synthetic.Corpus(**parts), folder / "text")
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

# %% [markdown]
# The three differ in the attention alone: RNNsearch* with additive attention, with
# linguistic coverage, and with inertia.

# %%
ATTENTIONS = ("additive", "linguistic_coverage", "inertia")
plain = kvnmt.experiment("rnnsearch-star", data, sizes, recipe="papers")
runs, seconds = {}, {}
for name in ATTENTIONS:
    experiment = replace(
        plain,
        model=replace(plain.model, attention=CATALOGUE[name].Options()),
        optimizer=kvnmt.OptimizerConfig(learning_rate=3e-3),
        training=kvnmt.TrainingConfig(
            epochs=EPOCHS, batch_size=40, shapes=1, bleu_tokenize="none"
        ),
        search=kvnmt.SearchConfig(beam=4),
    )
    start = time.perf_counter()
    runs[name] = kvnmt.train(experiment, folder / name)
    seconds[name] = time.perf_counter() - start

# %% [markdown]
# ## Its row in the table
#
# BLEU and, against the gold links of the language, the alignment error rate; how many
# source words are dropped and repeated; and how long training took, compiling included.

# %%
test = parts["test"]
lines, references = made_up.lines_of(test)
heads = ("attention", "parameters", "BLEU", "AER", "dropped", "repeated", "seconds")
print(f"{heads[0]:20}", *(f"{head:>10}" for head in heads[1:]))
table = {}
for name, run in runs.items():
    count = sum(leaf.size for leaf in jax.tree.leaves(run.params))
    table[name] = made_up.measure(run, run.translate(lines), test)
    shares = (f"{table[name][key]:10.1%}" for key in ("aer", "dropped", "repeated"))
    bleu = table[name]["bleu"]
    print(f"{name:20} {count:10,} {bleu:10.2f}", *shares, f"{seconds[name]:10.0f}")

# %% [markdown]
# One run of a small model proves nothing: an experiment has seeds and a test of
# significance (`kvnmt evaluate`). How inertia reads a sentence:

# %%
pair = max(test, key=lambda pair: len(pair.source))
explanation = runs["inertia"].explain(" ".join(pair.source))
explanation

# %% [markdown]
# To keep a mechanism, put it in a file of its own: `docs/catalogue.md` shows one, and
# the line that lists it. From then on the test suite tries all laws on it, and the
# command knows it: `kvnmt train runs/mine --attention inertia`.

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Linear memories
#
# <!-- SPDX-License-Identifier: Apache-2.0 -->
#
# They have no softmax over the source words. Keys are directions in a matrix $M$; a
# write fades, erases what its key finds, and adds:
#
# $M \leftarrow D M - k\,(b * k)^\top D M + k\,(w * v)^\top$, and $c = M^\top q$.
#
# What is read is still a mixture of what the words wrote, and the weights are known
# exactly. This notebook asks seven of them the same query three times, and draws their
# weights beside those of a key memory. It needs no data, no network and no training.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import random

from kvnmt.attention import CATALOGUE, Attention, Moment
from kvnmt.initializers import gaussian
from kvnmt.typing import Sizes

# %% [markdown]
# A sentence of six source words, as an encoder might see it, a query and the decoder
# state that comes of it.

# %%
SOURCE = ["the", "dogs", "chased", "a", "hat", "</s>"]
SIZES = Sizes(embedding=8, encoder=8, annotation=12, state=12, alignment=10)

annotations = random.normal(random.key(0), (1, len(SOURCE), SIZES.annotation))
query = random.normal(random.key(1), (1, SIZES.state))
new_state = random.normal(random.key(3), (1, SIZES.state))
moment = Moment(previous_state=query, embedded=query[:, :8], query=query)


def prepared(attention: Attention):
    """Parameters, what is constant for the sentence, and what is carried."""
    params = attention.init(random.key(2), SIZES, gaussian(0.5))
    mask = jnp.ones((1, len(SOURCE)), bool)
    source = attention.prepare(params, annotations, mask)
    return params, source, attention.initial_state(params, source)


# %% [markdown]
# ## Three looks
#
# `weigh` gives the weight of every source word with its sign. The decoder writes after
# each look, as it does to the key memory; its own share of what is read is told apart.

# %%
linear = CATALOGUE["delta_memory"]
weighed = {}
for update in ("sum", "decay", "gated", "delta", "gated_delta", "kda", "gated_delta_2"):
    memory = linear.build(linear.Options(update=update, write="decoder"))
    params, source, state = prepared(memory)
    rows = []
    for _ in range(3):
        told = memory.weigh(params, source, state, moment)
        rows.append(told.signed[0, 0])  # of the one head
        after = moment.replace(decoder_state=new_state)
        state = memory.write(params, source, state, after)
    weighed[update] = np.stack(rows)
    print(f"{update:14} the decoder's own share of the third look: {told.own[0]:.2f}")

# %%
kv_memory = CATALOGUE["kv_memory"].build(CATALOGUE["kv_memory"].Options())
params, source, state = prepared(kv_memory)
rows = []
for _ in range(3):
    attended = kv_memory.read(params, source, state, moment)
    rows.append(attended.alignment[0])
    after = moment.replace(decoder_state=new_state, attended=attended)
    state = kv_memory.write(params, source, state, after)
looks = {"kv_memory": np.stack(rows)} | weighed

# %% [markdown]
# A row is a look, a column a source word. Those of the key memory are above zero and
# sum to one. A plain sum only ever adds: what the source wrote keeps its weight. The
# others fade it or replace it.

# %%
figure, signs = plt.subplots(2, 4, figsize=(11, 4.2), layout="constrained")
for panel, (name, weights) in zip(signs.flat, looks.items(), strict=True):
    most = np.abs(weights).max()
    panel.imshow(weights, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    panel.set_title(f"{name}, to {most:.2f}", fontsize=10)
    panel.set_xticks(range(len(SOURCE)), SOURCE, rotation=90)
    panel.set_yticks(range(3), ["1st", "2nd", "3rd"])
figure.supxlabel("source word; blue: read, red: taken away")

# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A key memory, word by word
#
# <!-- SPDX-License-Identifier: Apache-2.0 -->
#
# KVMemAtt (Meng et al. 2018) reads the source in several rounds, and after each it
# forgets and adds something at the keys. Here a small one is trained on a made-up
# language whose word alignments are known, and then looked at while it translates:
# what was forgotten and added, where each round looks, and all of it in the explorer.
# No data and no network are needed; it takes a minute or two on two cores.

# %%
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import kvnmt
from experiments.parts import made_up
from kvnmt.data import synthetic
from kvnmt.evaluation.exploration import explore
from kvnmt.model.config import Dropout

SMALL = bool(os.environ.get("KVNMT_SMALL"))  # a trial run of this notebook

# %% [markdown]
# ## Train it
#
# As in the paper, RNNsearch* comes first and the memory starts from it. We keep short
# sentences of the language, to be quick.

# %%
PAIRS, LONGEST, UNITS, EPOCHS = (60, 12, 8, 1) if SMALL else (6000, 9, 64, 10)

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


def train(system: str, epochs: int, rate: float, start: Path | None) -> kvnmt.Run:
    """Trains a system in a folder of its name."""
    training = kvnmt.TrainingConfig(
        epochs=epochs,
        batch_size=40,
        shapes=1,
        bleu_tokenize="none",
        warm_start=start,
    )
    experiment = replace(
        kvnmt.experiment(system, data, sizes, recipe="papers"),
        optimizer=kvnmt.OptimizerConfig(learning_rate=rate),
        training=training,
        search=kvnmt.SearchConfig(beam=4),
    )
    return kvnmt.train(experiment, folder / system)


baseline = train("rnnsearch-star", EPOCHS, 3e-3, None)
run = train("kvmematt-r2-atteos", EPOCHS, 1e-3, folder / "rnnsearch-star")

# %%
test = parts["test"]
lines, references = made_up.lines_of(test)
for name, trained in (("rnnsearch-star", baseline), ("kvmematt-r2-atteos", run)):
    figures = made_up.measure(trained, trained.translate(lines), test)
    print(f"{name:20} BLEU {figures['bleu']:5.2f}   AER {figures['aer']:.1%}")

# %% [markdown]
# ## One sentence
#
# An explanation at the end of a cell shows the translation with the probability of each
# token, where each round looked, and what each write forgot and added. Rows are target
# words, columns source words. A dot marks where the second round looks elsewhere. This
# is the longest sentence that the model gets wrong.

# %%
translations = run.translate(lines)
wrong = [pair for pair, *two in zip(test, translations, references) if len({*two}) > 1]
pair = max(wrong or test, key=lambda pair: len(pair.source))
explanation = run.explain(" ".join(pair.source))
explanation

# %% [markdown]
# The numbers behind the pictures are matrices, one for each round: row `t` belongs to
# `target_tokens[t]`, column `j` to `source_tokens[j]`.

# %%
shape = len(explanation.target_tokens), len(explanation.source_tokens)
memory = explanation.memory
assert memory is not None
for matrix in (*explanation.alignments, *memory.forgotten, *memory.added):
    assert matrix.shape == shape
for matrix in explanation.alignments:
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)

# %% [markdown]
# Word by word: which source word each round read most, and at which keys the writes
# of that step forgot and added most (the sum of both rounds, as lengths of vectors).


# %%
def strongest(row: np.ndarray) -> str:
    """The source word of the greatest number in a row, with the number."""
    column = int(row.argmax())
    return f"{explanation.source_tokens[column]} {row[column]:.2f}"


first, second = explanation.alignments
forgotten, added = sum(memory.forgotten), sum(memory.added)
heads = ("target", "first round", "second round", "forgot most", "added most")
print(" ".join(f"{head:18}" for head in heads))
for t, token in enumerate(explanation.target_tokens):
    cells = [token, *(strongest(m[t]) for m in (first, second, forgotten, added))]
    print(" ".join(f"{cell:18}" for cell in cells))

# %% [markdown]
# The same sentence with the translation that it should have: the model is forced to
# write the reference, and tells how it reads the source for it.

# %%
run.explain(" ".join(pair.source), " ".join(pair.target))

# %% [markdown]
# ## Many sentences: the explorer
#
# Both systems on a dozen sentences. The whole page is in this notebook and asks nothing
# of a network. Click a target word, or step with the arrow keys once the page has the
# focus; the bars show what the writes of that step did to every key.
# `explorer.write("explorer.html")` makes a page of its own.

# %%
systems = {"rnnsearch-star": baseline, "kvmematt-r2-atteos": run}
search = kvnmt.SearchConfig(beam=4)
explorer = explore(systems, lines[:12], references[:12], search)
explorer

# SPDX-License-Identifier: Apache-2.0
"""RNNsearch* under another program's recipe."""

import json

from experiments import even_match
from experiments.even_match import EvenMatch
from tests.experiments.fake import untrained, write_captions


def test_the_row_is_trained_under_that_recipe(tmp_path, capsys):
    write_captions(tmp_path)
    seen = []

    def train(experiment, folder, **rest):
        seen.append(experiment)
        return untrained(experiment, folder, **rest)

    options = EvenMatch(data=tmp_path, workdir=tmp_path / "runs")
    even_match.main(options, train=train)
    (experiment,) = seen
    model, rates = experiment.model, experiment.model.dropout
    assert (model.merge, model.initializer) == ("concat", "glorot")
    assert (rates.embedding, rates.annotations, rates.output) == (0.2, 0.0, 0.5)
    assert experiment.objective.label_smoothing == 0
    assert (experiment.training.batch_size, experiment.training.epochs) == (80, 12)
    assert (experiment.optimizer.learning_rate, experiment.optimizer.decay) == (
        0.001,
        0.85,
    )
    assert experiment.data.max_length == 60
    result = json.loads((tmp_path / "runs/de-en-joeynmt-1/result.json").read_text())
    assert result["recipe"] == even_match.RECIPE
    assert f"{result['test2016_bleu']:.2f}" in capsys.readouterr().out

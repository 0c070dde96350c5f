# SPDX-License-Identifier: Apache-2.0
"""KVMemAtt at the settings of its paper, on parallel text of your own.

Claim (Meng et al. 2018, table 1, NIST Chinese-English, averages over MT03 to MT06, as
published): RNNsearch* 36.53, KVMemAtt-R1 38.45, R1 + ATTEOS 38.66, R2 38.93,
R2 + ATTEOS 39.33 BLEU; speed 2773, 2263, 1992, 1804, 1676 target words per second on
one Tesla P40. The corpus (LDC, 1.25 million pairs) is not free, so this experiment
was not run on it here.

Sizes 512 everywhere with summed annotations, 30 000 words on each side, at most 80
words, Adadelta, batches of 80, dropout 0.5 on the output layer. The paper trains the
baseline first and starts the memory models from it.

Launch::

    python -m experiments.kvmematt runs/base --system rnnsearch-star \
        --data.source train.zh --data.target train.en \
        --data.valid-source valid.zh --data.valid-target valid.en
    python -m experiments.kvmematt runs/r2 --system kvmematt-r2-atteos \
        --training.warm-start runs/base (and the same data)
"""

from kvnmt.cli.main import main
from kvnmt.data.config import DataConfig
from kvnmt.model_config import Dropout, ModelConfig
from kvnmt.runs.config import Experiment
from kvnmt.training.config import TrainingConfig
from kvnmt.training.optimizer import OptimizerConfig

EXPERIMENT = Experiment(
    model=ModelConfig(
        embedding=512,
        encoder=512,
        state=512,
        merge="sum",
        dropout=Dropout(output=0.5),
    ),
    data=DataConfig(min_count=1, vocabulary_size=30000, max_length=80),
    optimizer=OptimizerConfig(name="adadelta", clip=1.0),
    training=TrainingConfig(batch_size=80, epochs=20, validate_every=5000),
)

if __name__ == "__main__":
    main(command="train", base=EXPERIMENT)

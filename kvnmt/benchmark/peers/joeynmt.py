# SPDX-License-Identifier: Apache-2.0
"""JoeyNMT 2.3 (Kreutzer et al. 2019): its attentive GRU with input feeding.

Of the tokens that it counts, EOS is one. It stops at an empty line.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvnmt.benchmark.peers.base import Arguments, Program, Search, Task, numbers

SPECIAL = {
    "unk_token": "<unk>",
    "unk_id": 0,
    "pad_token": "<pad>",
    "pad_id": 1,
    "bos_token": "<s>",
    "bos_id": 2,
    "eos_token": "</s>",
    "eos_id": 3,
}
# Its own command, with the config of the model but for how to translate.
TRANSLATE = """
import json, sys, tempfile, yaml
from joeynmt.__main__ import main
folder, testing = sys.argv[1:]
with open(f"{folder}/config.yaml") as file:
    config = yaml.safe_load(file)
config |= {"model_dir": folder, "use_cuda": False}
config["testing"] = json.loads(testing)
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    yaml.safe_dump(config, file)
    file.flush()
    sys.argv[1:] = ["translate", file.name]
    main()
"""


def train(
    task: Task, folder: Path, recipe: Mapping[str, Any] = MappingProxyType({})
) -> list[Arguments]:
    """The command that trains; validates after every epoch.

    Args:
        task: Text and sizes.
        folder: Where the model will be; its config stands beside it.
        recipe: What its section ``training`` has otherwise.
    """
    config = _config(task, folder)
    config["training"] |= recipe
    path = folder.with_suffix(".yaml")
    path.write_text(json.dumps(config, indent=1))  # which is YAML too
    return [("-m", "joeynmt", "train", str(path), "--skip-test")]


def speed(log: str) -> float:
    """Target tokens a second over whole epochs, without validation."""
    epochs = numbers(r"num\. of tokens: (\d+), ([\d.]+)\[sec\]", log, "JoeyNMT")
    return sum(tokens for tokens, _ in epochs) / sum(seconds for _, seconds in epochs)


def translate(folder: Path, search: Search) -> Arguments:
    """The command that translates, with the best checkpoint."""
    testing = {
        "n_best": 1,
        "beam_size": search.beam,
        "beam_alpha": 1.0,
        "batch_size": search.batch_size,
        "batch_type": "sentence",
        "max_output_length": search.longest,
    }
    return ("-c", TRANSLATE, str(folder), json.dumps(testing))


def seconds(log: str) -> float:
    """Without loading the model."""
    return numbers(r"Generation took ([\d.]+)\[sec\]", log, "JoeyNMT")[-1][0]


def _config(task: Task, folder: Path) -> dict[str, Any]:
    return {
        "name": "benchmark",
        "model_dir": str(folder),
        "use_cuda": False,
        "fp16": False,
        "random_seed": task.seed,
        "data": {
            "train": str(task.text / "train"),
            "dev": str(task.text / "valid"),
            "dataset_type": "plain",
            "src": _side(task.source, task.longest),
            "trg": _side(task.target, task.longest),
            "special_symbols": SPECIAL,
        },
        "testing": {
            "beam_size": 1,  # validation is greedy in any case
            "batch_size": 64,
            "batch_type": "sentence",
            "max_output_length": task.longest,
            "eval_metrics": ["bleu"],
            "sacrebleu_cfg": {"tokenize": "none"},
        },
        "training": _training(task),
        "model": _model(task),
    }


def _training(task: Task) -> dict[str, Any]:
    return {
        "optimizer": "adam",
        "learning_rate": 0.001,
        "scheduling": "exponential",
        "decrease_factor": 1.0,  # constant
        "clip_grad_norm": 1.0,
        "loss": "crossentropy",
        "batch_size": task.batch_size,
        "batch_type": "sentence",
        "epochs": task.epochs,
        "validation_freq": task.steps,
        "logging_freq": task.steps,
        "early_stopping_metric": "bleu",
        "keep_best_ckpts": 1,
        "shuffle": True,
        "overwrite": True,
    }


def _side(language: str, longest: int) -> dict[str, Any]:
    return {
        "lang": language,
        "max_length": longest + 1,
        "lowercase": False,
        "normalize": False,
        "level": "word",
        "voc_min_freq": 2,
    }


def _model(task: Task) -> dict[str, Any]:
    rnn = {
        "type": "recurrent",
        "rnn_type": "gru",
        "embeddings": {
            "embedding_dim": task.embedding,
            "scale": False,
            "dropout": task.embedding_dropout,
        },
        "dropout": task.embedding_dropout,
        "num_layers": 1,
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "normal",
        "embed_init_weight": 0.1,
        "bias_initializer": "zeros",
        "init_rnn_orthogonal": True,
        "tied_embeddings": False,
        "tied_softmax": False,
        "encoder": rnn | {"hidden_size": task.encoder, "bidirectional": True},
        "decoder": rnn
        | {
            "hidden_size": task.state,
            "hidden_dropout": task.output_dropout,
            "input_feeding": True,
            "init_hidden": "bridge",
            "attention": "bahdanau",
        },
    }


PROGRAM = Program(
    name="JoeyNMT",
    module="joeynmt",
    install="pip install torch joeynmt importlib_metadata",
    train=train,
    speed=speed,
    translate=translate,
    seconds=seconds,
)

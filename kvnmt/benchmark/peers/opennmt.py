# SPDX-License-Identifier: Apache-2.0
"""OpenNMT-py 3.5 (Klein et al. 2017): its attentive GRU with input feeding.

Its encoder splits its width over the two directions, and the decoder must be as wide as
both together: `encoder` in each direction means 2 x `encoder` in the decoder. One rate
of dropout, that of the readout, holds for embeddings, too.
"""

import json
from pathlib import Path
from typing import Any

from kvnmt.benchmark.peers.base import Arguments, Program, Search, Task, numbers
from kvnmt.errors import UserError

LOG = "Step .*?; sents: +\\d+; bsz: .*?; +[\\d.]+/ *([\\d.]+) tok/s; +([\\d.]+) sec"

NO_LIMIT = 10**9  # words

# Its own command; what it writes must be a file that it can go back in.
TRANSLATE = """
import contextlib, sys, tempfile
from onmt.bin.translate import main
with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
    sys.argv += ["-output", file.name]
    with contextlib.redirect_stdout(sys.stderr):
        main()
    sys.stdout.write(file.read())
"""


def check(task: Task) -> None:
    """Refuses widths and rates that it does not have.

    Raises:
        UserError: The decoder is not twice as wide as the encoder, or dropout differs.
    """
    if task.state != 2 * task.encoder:
        raise UserError(
            f"OpenNMT-py's decoder is as wide as both directions of its encoder; give "
            f"--model.encoder {task.state // 2}, or --model.state {2 * task.encoder}."
        )
    if task.embedding_dropout not in (0, task.output_dropout):
        raise UserError(
            "OpenNMT-py drops out embeddings and readout at one rate; give "
            f"--model.dropout.embedding {task.output_dropout}, as that of the output, "
            "or leave it out."
        )


def train(task: Task, folder: Path) -> list[Arguments]:
    """The commands that count words and train."""
    path = folder.with_suffix(".yaml")
    path.write_text(json.dumps(_config(task, folder), indent=1))  # which is YAML too
    return [
        _run("build_vocab", "-config", str(path), "-n_sample", "-1"),
        _run("train", "-config", str(path)),
    ]


def speed(log: str) -> float:
    """Target tokens a second in the first epoch: later reports count validation, too.

    Raises:
        UserError: It was too fast for the seconds that it tells.
    """
    (rate, seconds), *_ = numbers(LOG, log, "OpenNMT-py")
    if not seconds:
        raise UserError(
            "OpenNMT-py tells whole seconds and trained for less than half of one; "
            "give more --pairs."
        )
    return rate


def translate(folder: Path, search: Search) -> Arguments:
    """The command that translates, with the last checkpoint.

    Raises:
        UserError: There is none.
    """
    models = folder.glob("*_step_*.pt")
    last = max(models, key=lambda path: int(path.stem.rpartition("_")[2]), default=None)
    if last is None:
        raise UserError(f"'{folder}' holds no model of OpenNMT-py.")
    return (
        *("-c", TRANSLATE),
        *("-model", str(last)),
        *("-src", "/dev/stdin"),
        *("-beam_size", str(search.beam)),
        *("-batch_size", str(search.batch_size)),
        *("-batch_type", "sents"),
        *("-max_length", str(search.longest)),
        *("-length_penalty", "wu"),
        *("-alpha", "1.0"),
        "-report_time",
    )


def seconds(log: str) -> float:
    """Without loading the model."""
    counts = numbers(r"NB SENTENCES: (\d+)", log, "OpenNMT-py")
    each = numbers(r"Average translation time \(ms\): ([\d.]+)", log, "OpenNMT-py")
    return counts[-1][0] * each[-1][0] / 1000


def _run(program: str, *arguments: str) -> Arguments:
    code = f"import sys; from onmt.bin.{program} import main; sys.exit(main())"
    return ("-c", code, *arguments)


def _config(task: Task, folder: Path) -> dict[str, Any]:
    steps = task.steps * task.epochs
    return {
        "save_data": str(folder),
        "src_vocab": str(folder / "vocab.src"),
        "tgt_vocab": str(folder / "vocab.tgt"),
        "src_vocab_size": NO_LIMIT,
        "tgt_vocab_size": NO_LIMIT,
        "src_words_min_frequency": 2,
        "tgt_words_min_frequency": 2,
        "overwrite": True,
        "data": {
            "corpus_1": _text(task, "train"),
            "valid": _text(task, "valid"),
        },
        "save_model": str(folder / "model"),
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": "GRU",
        "global_attention": "mlp",
        "input_feed": 1,
        "word_vec_size": task.embedding,
        "enc_layers": 1,
        "dec_layers": 1,
        "enc_hid_size": 2 * task.encoder,
        "dec_hid_size": 2 * task.encoder,
        "bridge": True,
        "dropout": [task.output_dropout],
        "optim": "adam",
        "learning_rate": 0.001,
        "max_grad_norm": 1.0,
        "batch_size": task.batch_size,
        "batch_type": "sents",
        "bucket_size": task.pairs,
        "num_workers": 0,
        "train_steps": steps,
        "valid_steps": task.steps,
        "save_checkpoint_steps": task.steps,
        "report_every": task.steps,
        "seed": task.seed,
    }


def _text(task: Task, part: str) -> dict[str, str]:
    return {
        "path_src": str(task.text / f"{part}.{task.source}"),
        "path_tgt": str(task.text / f"{part}.{task.target}"),
    }


PROGRAM = Program(
    name="OpenNMT-py",
    module="onmt",
    install="pip install torch opennmt-py",
    train=train,
    speed=speed,
    translate=translate,
    seconds=seconds,
    check=check,
    environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
)

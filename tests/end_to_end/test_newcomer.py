# SPDX-License-Identifier: Apache-2.0
"""What a newcomer does: make text, train, translate, evaluate; each a process."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from kvnmt.data import synthetic

KVNMT = Path(sysconfig.get_path("scripts")) / "kvnmt"
TRAINING = """--data.vocabulary words --data.min-count 1 --model.embedding 32
    --model.encoder 32 --model.state 32 --model.merge sum
    --model.dropout.output 0.1 --optimizer.learning-rate 0.01
    --training.metric loss --training.epochs 5
    --training.batch-size 16 --training.shapes 1 --training.bleu-tokenize none
    --search.beam 4"""


@pytest.mark.slow
def test_a_newcomer_gets_a_translator(tmp_path):
    corpus = synthetic.make_corpus(1, train=900, valid=40, test=40)
    synthetic.write_corpus(corpus, tmp_path / "text")
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # Compiled as newcomers have it: the training is longer than that takes.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
    }

    def kvnmt(arguments: str, given: bytes = b"") -> tuple[bytes, str]:
        """Runs one command line in the folder, as the newcomer types it."""
        found = subprocess.run(
            [KVNMT, *arguments.split()],
            **{"input": given, "capture_output": True, "timeout": 600},
            **{"cwd": tmp_path, "env": environment},
        )
        said = found.stderr.decode()
        assert found.returncode == 0, said
        assert "Traceback" not in said and "Warning" not in said
        return found.stdout, said

    files = (
        "--data.source text/train.src --data.target text/train.trg "
        "--data.valid-source text/valid.src --data.valid-target text/valid.trg"
    )
    out, said = kvnmt(f"train run {TRAINING} {files}")
    assert out == b""
    assert "900 training pairs" in said
    assert "translate with: kvnmt translate run < source > target" in said
    records = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(record)["valid_loss"] for record in records]
    assert len(losses) == 5
    assert losses[-1] < 0.75 * losses[0]
    test = (tmp_path / "text" / "test.src").read_bytes()
    out, said = kvnmt("translate run", given=test)
    assert said == ""
    assert out.count(b"\n") == test.count(b"\n") == 40
    known = {word for pair in corpus.train for word in pair.target}
    assert set(out.decode().split()) <= known | {"<unk>"}
    (tmp_path / "out").write_bytes(out)
    test_set = "--reference text/test.trg --tokenize none"
    scores, _ = kvnmt(f"evaluate out {test_set} --json")
    (row,) = json.loads(scores)["score"][0]["rows"]
    assert row["bleu"] > 5
    assert row["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none")
    assert row["chrf"] > 20

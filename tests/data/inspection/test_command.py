# SPDX-License-Identifier: Apache-2.0
"""The command that checks text: its output and its status."""

import json

import pytest

from kvnmt.data.vocabularies import Vocabularies, save_vocabularies
from kvnmt.data.vocabulary import Words
from tests.data.inspection.helpers import flags, toy, write


def validated(kvnmt, *arguments: object) -> tuple[int, str, str]:
    """Status, standard output and standard error."""
    status, out, err = kvnmt("validate", *arguments)
    return status, out.decode(), err


def test_the_command_is_content_with_a_clean_corpus(kvnmt, tmp_path, clean):
    arguments = flags(write(tmp_path, clean))
    status, out, err = validated(kvnmt, *arguments)
    assert (status, err) == (0, "")
    for part in (
        "test.target",
        "1,500 training pairs",
        "counted in words; in subwords",
    ):
        assert part in out
    status, out, err = validated(kvnmt, *arguments, "--json")
    assert (status, err) == (0, "")
    plain = json.loads(out)
    assert plain["serious"] is False
    assert plain["findings"] == []
    left_out = {"empty": 0, "too_long": 0, "undecodable": 0, "uneven": 0}
    assert plain["kept"] == {"pairs": 1500} | left_out
    assert plain["files"][3]["lines"] == 150


def test_the_command_tells_what_is_serious_by_its_status(kvnmt, tmp_path):
    folder = tmp_path / "[red]folder"
    folder.mkdir()
    paths = folder / "a.src", folder / "a.trg"
    for path, data in zip(paths, toy(source=b"a\nb\xff\n")):
        path.write_bytes(data)
    arguments = ["--source", paths[0], "--target", paths[1]]
    status, out, err = validated(kvnmt, *arguments)
    assert (status, err) == (1, "")
    for part in ("error", "line-counts", "undecodable"):
        assert part in out
    assert "".join(out.split()).count("[red]folder/a") >= 5
    status, out, _ = validated(kvnmt, *arguments, "--json")
    plain = json.loads(out)
    assert status == 1
    assert plain["serious"] is True
    findings = {finding["name"]: finding for finding in plain["findings"]}
    assert findings["undecodable"]["examples"][0]["line"] == 2
    assert findings["undecodable"]["examples"][0]["file"] == str(paths[0])


def test_the_command_takes_the_vocabularies_of_a_run(kvnmt, tmp_path, clean):
    paths = write(tmp_path, clean)
    run = tmp_path / "run"
    words = Words(("the",)), Words(("wa",))
    save_vocabularies(Vocabularies(*words), run / "vocabulary")
    (run / "config.json").write_text('{"data": {"max_length": 7}}')
    status, out, _ = validated(kvnmt, *flags(paths), "--run", run, "--json")
    assert status == 0 and "more than 7 tokens of the run; training" in out
    files = json.loads(out)["files"]
    lengths = [max(len(x.split()), len(y.split())) for x, y in zip(*clean["train"])]
    assert json.loads(out)["kept"]["too_long"] == sum(n > 7 for n in lengths) > 0
    ids = [i for line in clean["train"][0] for i in words[0].encode(line)]
    assert files[0]["unknown"] == ids.count(1)


MISUSE = [
    (["--source", "A", "--target", "NOWHERE"], "no file"),
    (["--source", "A", "--target", "FOLDER"], "cannot be read"),
    (["--source", "A", "--target", "A", "--test-source", "A"], "--test-target"),
    (["--source", "A", "--target", "A", "--valid-target", "A"], "--valid-source"),
    (["--source", "A", "--target", "A", "--max-length", "0"], "--max-length"),
    (["--source", "A", "--target", "A", "--max-ratio", "0.5"], "--max-ratio"),
    (["--source", "A", "--target", "A", "--run", "FOLDER"], "is no run directory"),
    (["--source", "A"], "--target"),
]


@pytest.mark.parametrize(("arguments", "part"), MISUSE)
def test_misuse_has_status_two(kvnmt, tmp_path, arguments, part):
    (tmp_path / "a").write_bytes(b"a\n")
    places = {"A": tmp_path / "a", "FOLDER": tmp_path, "NOWHERE": tmp_path / "none"}
    status, out, err = validated(kvnmt, *(places.get(word, word) for word in arguments))
    assert (status, out) == (2, "")
    assert part in err
    assert "Traceback" not in err

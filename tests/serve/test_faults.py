# SPDX-License-Identifier: Apache-2.0
"""What goes wrong where a question is answered: whose fault it is, and who hears."""

import jax
import numpy as np

from kvnmt.runs.directory import load_run
from kvnmt.serve.guard import guard_of
from tests.helpers import untrained
from tests.serve.asking import LINES, refused
from tests.serve.serving import started


def test_an_error_of_ours_is_told_and_leaves_the_service_up(service, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("hidden")

    with monkeypatch.context() as patch:
        patch.setattr(service.serving.batcher, "_work", fail)
        found = service.post("/translate", LINES)
    refused(found, 500, "its log says why")
    assert "hidden" not in found.text
    counted = service.get("/metrics").text
    assert 'kvnmt_requests_total{path="/translate",status="500"} 1' in counted
    assert service.post("/translate", LINES).status_code == 200


def test_a_page_of_an_origin_hears_that_the_service_failed(runs, monkeypatch, capfd):
    def fail(*arguments):
        raise RuntimeError("hidden")

    origin = {"Origin": "https://good.example"}
    guard = guard_of("127.0.0.1", None, (origin["Origin"],))
    with started(runs, guard=guard) as service:
        monkeypatch.setattr(service.serving.batcher, "_work", fail)
        found = service.post("/translate", LINES, headers=origin)
    refused(found, 500, "its log says why")
    assert found.headers["access-control-allow-origin"] == origin["Origin"]
    assert "RuntimeError: hidden" in capfd.readouterr().err


def test_what_is_read_with_no_finite_number_is_one_sentence(runs):
    run = runs["plain"]
    spoilt = jax.tree.map(lambda leaf: leaf * np.nan, run.params)
    with started({"spoilt": run._replace(params=spoilt)}) as service:
        answer = service.post("/explore", {"line": "a b"})
        refused(answer, 500, "'spoilt' reads line 1 with numbers that are not finite")


def test_an_option_that_a_system_cannot_have_is_the_mistake_of_who_asks(
    tmp_path_factory,
):
    blind = load_run(untrained(tmp_path_factory.getbasetemp(), "rnnencdec"))
    with started({"blind": blind}) as service:
        answer = service.post("/translate", LINES | {"search": {"coverage": 1}})
        refused(answer, 400, "coverage needs an alignment")

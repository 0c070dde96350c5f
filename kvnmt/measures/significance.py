# SPDX-License-Identifier: Apache-2.0
"""Four tests of every system against the first."""

from collections.abc import Sequence

from kvnmt.evaluation.bleu import bleu_of
from kvnmt.evaluation.significance import resample, sign_test, t_test
from kvnmt.measures.base import Column, LackingError, Report, System, Test

COLUMNS = (
    Column("system", "system"),
    Column("difference", "BLEU difference", "{:+.2f}"),
    Column("improved", "sentences better"),
    Column("worsened", "worse"),
    Column("sign_test", "p sign test", "{:.4f}"),
    Column("t_test", "p t-test", "{:.4f}"),
    Column("bootstrap", "p bootstrap", "{:.4f}"),
    Column("randomisation", "p randomisation", "{:.4f}"),
    Column("bootstrap_chrf", "p bootstrap chrF2", "{:.4f}"),
    Column("randomisation_chrf", "p randomisation chrF2", "{:.4f}"),
)


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Sign test, t-test, paired bootstrap and approximate randomisation."""
    if len(systems) < 2:
        raise LackingError("there is only one system")
    counted = [test.statistics(system) for system in systems]
    outputs = [system.hypotheses for system in systems]
    settings = test.settings
    bootstrap = resample(outputs, test.reference, "bootstrap", settings)
    shuffled = resample(outputs, test.reference, "randomisation", settings)
    baseline, rows = counted[0], []
    for n, (system, own) in enumerate(zip(systems[1:], counted[1:])):
        sign = sign_test(baseline, own)
        row = {
            "system": system.name,
            "difference": float(bleu_of(own.sum(0)) - bleu_of(baseline.sum(0))),
            "improved": sign.improved,
            "worsened": sign.worsened,
            "sign_test": sign.p,
            "t_test": t_test(baseline, own),
        }
        for name, found in (("bootstrap", bootstrap), ("randomisation", shuffled)):
            row[name] = found.p["BLEU"][n]
            row[f"{name}_chrf"] = found.p["chrF2"][n]
        rows.append(row)
    notes = [
        "sign test: two-sided, on corpus BLEU without smoothing; t-test: one-tailed, "
        "on sentence BLEU; the others two-sided, by sacreBLEU; the difference is not "
        "smoothed",
        f"bootstrap {bootstrap.signatures['BLEU']}",
        f"randomisation {shuffled.signatures['BLEU']}",
    ]
    return Report(f"against {systems[0].name}", COLUMNS, rows, notes)

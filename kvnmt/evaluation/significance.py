# SPDX-License-Identifier: Apache-2.0
"""Four tests of every system against the first."""

from collections.abc import Sequence

from kvnmt.evaluation.base import (
    Column,
    LackingError,
    Report,
    System,
    Test,
    check_bleu,
)
from kvnmt.metrics.bleu import sentence_bleu, summed_bleu
from kvnmt.metrics.significance import resample, seed_of_environment, sign_test, t_test

COLUMNS = (
    Column("system", "system"),
    Column("difference", "BLEU", "{:+.2f}"),
    Column("improved", "better"),
    Column("worsened", "worse"),
    Column("sign_test", "p sign", "{:.4f}"),
    Column("t_test", "p t", "{:.4f}"),
    Column("bootstrap", "p boot", "{:.4f}"),
    Column("randomisation", "p random", "{:.4f}"),
    Column("bootstrap_chrf", "p boot chrF2", "{:.4f}"),
    Column("randomisation_chrf", "p random chrF2", "{:.4f}"),
)


def check(test: Test, systems: Sequence[System]) -> None:
    """Needs a system to compare with the first."""
    check_bleu(test, systems)
    seed_of_environment()  # complains before anything is translated
    if len(systems) < 2:
        raise LackingError("there is only one system")


def measure(test: Test, systems: Sequence[System]) -> Report:
    """Sign test, t-test, paired bootstrap and approximate randomisation."""
    counted = [system.statistics(test) for system in systems]
    outputs = [system.hypotheses for system in systems]
    settings = test.settings
    bootstrap, shuffled = (
        resample(outputs, test.reference, kind, settings, test.more_references)
        for kind in ("bootstrap", "randomisation")
    )
    baseline, rows = counted[0], []
    for n, (system, statistics) in enumerate(zip(systems[1:], counted[1:])):
        sign = sign_test(baseline, statistics)
        row = {
            "system": system.name,
            "difference": summed_bleu(statistics.sum(0)) - summed_bleu(baseline.sum(0)),
            "improved": sign.improved,
            "worsened": sign.worsened,
            "sign_test": sign.p,
            "t_test": t_test(
                sentence_bleu(statistics) - sentence_bleu(baseline), "greater"
            ),
        }
        for name, resampled in (("bootstrap", bootstrap), ("randomisation", shuffled)):
            row[name] = resampled.p["BLEU"][n]
            row[f"{name}_chrf"] = resampled.p["chrF2"][n]
        rows.append(row)
    notes = [
        "p of the sign test, two-sided, on corpus BLEU without smoothing; of the "
        "t-test, one-tailed, on sentence BLEU; of the bootstrap and of randomisation, "
        "two-sided",
        *(f"bootstrap {signature}" for signature in bootstrap.signatures.values()),
        *(f"randomisation {signature}" for signature in shuffled.signatures.values()),
    ]
    title = f"difference from {systems[0].name}, sentences better and worse"
    return Report(title, COLUMNS, rows, notes)

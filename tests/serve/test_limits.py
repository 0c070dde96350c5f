# SPDX-License-Identifier: Apache-2.0
"""What is as much as may be is answered, what is one more is not."""

from collections.abc import Callable

import pytest

from kvnmt.serve import limits

LIMITS = limits.Limits(lines=3, aligned=4, characters=5)
CHECKS: dict[str, tuple[Callable[[int], object], int]] = {
    "lines": (lambda n: limits.check_count(["a"] * n, LIMITS), 3),
    "parts": (lambda n: limits.check_aligned([1] * n, 1, LIMITS), 4),
    "translations": (lambda n: limits.check_aligned([1], n, LIMITS), 4),
    "shown": (lambda n: limits.check_shown([(1, 200), (n - 1, 200)], LIMITS), 4),
    "characters": (lambda n: limits.clean_line("a" * n, "it", LIMITS), 5),
    "tokens": (lambda n: limits.check_tokens(n, "it", 6), 6),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_limit_may_be_met(name):
    check, most = CHECKS[name]
    check(most)
    with pytest.raises(limits.Refusal, match=f"{most + 1} .*{most}") as refusal:
        check(most + 1)
    assert refusal.value.status == 413

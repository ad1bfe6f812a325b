"""Agreement of a target with an existing system, compared with enumeration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bylot.evaluate import log_from_entries, make_iid_target, measure_agreement
from logged_decisions import TRIO, log_iid_draws
from test_distributions import ALL_AVAILABLE, list_panel_probabilities


def test_agreement_with_an_existing_system_equals_enumeration() -> None:
    chosen = log_iid_draws([0.6, 0.3, 0.1], 30, known=False)
    target = make_iid_target(TRIO, {"a": 2, "b": 1})
    found = measure_agreement(log_from_entries(TRIO, chosen), target)
    distribution, same, overlap, jaccard = target.distribution(None, ALL_AVAILABLE), [], [], []
    for one in chosen:
        logged = {TRIO.experts.index(name) for name in one.draws}
        target_panels = [
            (set(a.tolist()), probability)
            for a, probability in list_panel_probabilities(distribution, 3, 2)
        ]
        same.append(sum(p for b, p in target_panels if b == logged))
        overlap.append(sum(p * len(b & logged) / len(logged) for b, p in target_panels))
        jaccard.append(sum(p * len(b & logged) / len(b | logged) for b, p in target_panels))
    assert_allclose(
        [found.same, found.overlap, found.jaccard], np.mean([same, overlap, jaccard], axis=1)
    )
    assert found.impossible == sum("c" in one.draws for one in chosen) > 0
    assert found.median == pytest.approx(np.median(same))
    assert found.costs["usd"] == pytest.approx(8 / 9 * 1 + 5 / 9 * 2)

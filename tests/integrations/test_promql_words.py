"""The reader of expressions that the other tests rest on finds what is there."""

from __future__ import annotations

import pytest

from tests.integrations.promql_words import Words, words


@pytest.mark.parametrize(
    ("expression", "series", "labels"),
    [
        ("max by (run) (a_total)", {"a_total"}, {"run"}),
        ('rate(a:b{run="by (x)", k!~"y|z"}[5m])', {"a:b"}, {"run", "k"}),
        ("a offset 15m and on (run) b > 0.9 unless c == Inf", {"a", "b", "c"}, {"run"}),
        ("histogram_quantile(0.99, sum by (le, run) (rate(x_bucket[5m])))", {"x_bucket"}, {"le", "run"}),
        ("clamp_min(a - b, 0) + 1e9 * topk(10, c)", {"a", "b", "c"}, set()),
        ("count by (run) (group by (run, rank) (present_over_time(d[90s])))", {"d"}, {"run", "rank"}),
    ],
)
def test_words(expression: str, series: set[str], labels: set[str]) -> None:
    assert words(expression) == Words(frozenset(series), frozenset(labels))

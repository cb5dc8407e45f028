"""Numbers as people read them."""
from __future__ import annotations

import pytest
from ptdebug.artifacts.rounding import rounded


@pytest.mark.parametrize("text, shown", [
    ("p was 0.1, is 0.30000000000000004", "p was 0.1, is 0.3"),
    ("p == 0.25000000000000000 is no longer true: p is 0.35", "p == 0.25 is no longer true: p is 0.35"),
    ("lr was -0.30000000000000004, is 1e-07", "lr was -0.3, is 1e-07"),
    ("time() was 1795427030.6353395, is 1795427032.845037", "time() was 1795427031.0, is 1795427033.0"),
    ("x was 1.0, is 1.0000000000000002", "x was 1.0, is 1.0000000000000002"),
    ("x was 0.1234567, is 0.12345674", "x was 0.1234567, is 0.12345674"),
    ("x was 1, is 0.99999999", "x was 1, is 0.99999999"),
    ("x was 1e+300, is inf", "x was 1e+300, is inf"),
    ("torch 2.13.0 and y.1234567891", "torch 2.13.0 and y.1234567891"),
])
def test_floats_are_short_unless_they_would_look_the_same(text: str, shown: str) -> None:
    assert rounded(text) == shown

"""The names of a graph's inputs."""
from __future__ import annotations

from ptdebug.replay.inputs import in_words


def test_names_are_the_programs() -> None:
    assert in_words("L['self']._modules['b']._modules['1']._parameters['weight']") == "self.b[1].weight"
    assert in_words("G['table']['_modules'].grad") == "table['_modules'].grad"

"""What a call of the program leaves behind, and how that is compared."""
from __future__ import annotations

from typing import Any

import torch
from ptdebug.replay.program.effects import differences, gradients, mark, reachable, variables, written


class Holder:
    """An object of the program's own."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def left(roots: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    marks = {place: found for place, value in before.items() if (found := mark(value)) is not None}
    return written(reachable(roots), marks)


def places(mine: dict[str, Any], eager: dict[str, Any], before: dict[str, Any]) -> list[str]:
    return [place for place, _ in differences(mine, eager, before)]


def test_what_a_call_writes_is_found_by_its_place():
    def roots() -> dict[str, Any]:
        holder, layer = Holder(), torch.nn.Linear(2, 2)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.ones_(layer.bias)
        return {"L['x']": torch.zeros(3), "L['holder']": holder, "G['LAYER']": layer, "G['D']": {"a": 1, 2: (4.0,)}}

    one, other = roots(), roots()
    before = reachable(one)
    assert not places(left(one, before), left(other, reachable(other)), before)
    other["L['x']"].add_(1)
    other["L['holder']"].seen.append(5)
    with torch.no_grad():
        other["G['LAYER']"].weight[0, 0] = 9
    other["G['D']"]["a"] = 2
    found = places(left(one, before), left(other, {}), before)
    assert found[0] == "L['x']" and set(found) == {
        "L['x']", "G['D']['a']", "len(L['holder'].seen)", "G['LAYER']._parameters['weight']", "L['holder'].seen[0]"}


def test_a_write_of_the_same_numbers_is_no_difference():
    x = torch.ones(3)
    before = reachable({"L['x']": x})
    untouched = left({"L['x']": x}, before)
    marks = {place: mark(value) for place, value in before.items()}
    x.mul_(1)
    touched = written(reachable({"L['x']": x}), marks)
    assert untouched != touched and not places(touched, untouched, before)
    assert places(left({"L['x']": x.double()}, {}), untouched, before) == ["L['x']"]


def test_aliases_and_cycles_end():
    items: list[Any] = [torch.ones(2)]
    items.append(items)
    assert list(reachable({"L['a']": items, "L['b']": items})) == ["len(L['a'])", "L['a'][0]"]


def test_only_what_a_module_sets_is_looked_at():
    assert list(variables({"torch": torch, "Holder": Holder, "left": left, "N": 3, "__name__": "m"})) == ["G['N']"]


def test_gradients_of_what_a_call_began_with():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    found = gradients((x * 2, [x.detach()]), [("L['x']", x), ("L['y']", y)])
    assert list(found) == ["gradient of L['x']", "gradient of L['y']"] and found["gradient of L['y']"].sum() == 0
    assert gradients(None, [("L['x']", x)]) == {}

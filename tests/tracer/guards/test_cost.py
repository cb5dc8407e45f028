"""What each guard costs is measured when it is installed, and told."""
from __future__ import annotations

import time

import ptdebug
import torch
from ptdebug.artifacts.guard_costs import costliest, guard_cost, guards_cost
from ptdebug.artifacts.records import Guards, Runtime
from ptdebug.artifacts.render_lists import failed_objects, guard_text
from ptdebug.tracer.guards import cost


def test_each_guard_is_measured_or_said_to_be_not(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "BUDGET", 10**9)  # also where the machine is busy
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def function(x, y, mode):
        return model(x) + y if mode == "add" else x

    with ptdebug.record("recording", str(tmp_path)) as recording:
        ptdebug.compile(function)(torch.randn(2, 4), torch.randn(2, 4), "add")
    record = next(record for _, record in recording.records(Guards))
    found = {(guard.kind, guard.name): guard for guard in record.guards}
    alone = [found["EQUALS_MATCH", "mode"], found["TENSOR_MATCH", "x"], found["TENSOR_MATCH", "y"]]
    assert all(guard.check_ns is not None and guard.together == 1 for guard in alone)
    assert found["TENSOR_MATCH", "x"].check_ns > 0
    inside = [guard for guard in record.guards if guard.name.startswith("model") and guard.check_ns is not None]
    assert len({(guard.check_ns, guard.together) for guard in inside}) == 1 and inside[0].together >= len(inside) > 10

    function_of_module = (f"{inside[0].together} guards of model", inside[0].check_ns)
    listed = costliest(record)
    assert function_of_module in listed and ("TENSOR_MATCH x", found["TENSOR_MATCH", "x"].check_ns) in listed
    assert listed == sorted(listed, key=lambda each: -each[1])
    assert f"; most: {listed[0][0]} {listed[0][1]:,} ns" in guards_cost(record)
    assert "one function checks model and what it holds" in guard_cost(record, inside[-1])
    different = next(guard for guard in record.guards if guard.kind == "NO_ALIASING")
    assert different.check_ns is None and guard_cost(record, different).startswith("not measured alone")

    settings = next(guard for guard in record.guards if guard.kind == "GLOBAL_STATE")
    assert "grad mode on, " in guard_text(settings) and "global state" not in guard_text(settings)
    assert "default dtype torch.float32" in guard_text(settings) and "autocast" not in guard_text(settings)
    assert ("torch's settings", settings.check_ns) in listed
    assert failed_objects(record, Runtime(2, 1, failed={settings.source: 1}))[0][0].startswith("torch's settings")


def test_a_long_check_is_measured_in_few_calls():
    for seconds, most in ((0.002, 2), (0.0, 1 + cost.SAMPLES * cost.CHECKS)):
        calls = []

        def check(value, calls=calls, seconds=seconds):
            calls.append(value)
            time.sleep(seconds)

        assert cost._nanoseconds(check, "x") >= seconds * 1e9
        assert len(calls) == most or (seconds == 0.0 and len(calls) < most)

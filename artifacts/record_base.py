"""What records have in common: references to items, places in the program, tensors' metadata."""
from __future__ import annotations

from typing import Annotated

from ..dependencies import msgspec

Ref = str
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number for arithmetic: limited to 63 bits, since damaged recordings may hold any number."""


def ref(stage: str, item: object, name: str = "") -> Ref:
    """The reference to `item` of the artifact `name` of `stage` (see `records.py`)."""
    return f"{stage}:{name}#{item}" if name else f"{stage}#{item}"


def split_ref(reference: Ref) -> tuple[str, str, str]:
    """(stage, name, item) of a reference; name is "" for a stage that has one artifact."""
    head, _, item = reference.partition("#")
    stage, _, name = head.partition(":")
    return stage, name, item


class Record(msgspec.Struct, frozen=True, tag=True, tag_field="record", omit_defaults=True, gc=False):
    """Base of everything that is stored: the class name is the tag in the JSON."""


class Location(Record, frozen=True):
    """A location in a source file. Lines count from 1, columns from 0; -1 is unknown."""

    file: str
    line: int
    function: str = ""
    column: int = -1
    end_line: int = -1
    end_column: int = -1


class TensorMeta(Record, frozen=True):
    """A tensor without its values. Sizes are ints, or strings where symbolic ("s0", "2*s0 + 1")."""

    dtype: str
    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    device: str
    requires_grad: bool = False
    offset: int | str = 0

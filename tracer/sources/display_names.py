"""Locations and objects as the user would name them: `self.layers[0].weight`, `x.sum() > 20`."""
from __future__ import annotations

import linecache
import re

from ...artifacts.records import Location
from .source import (
    AttrSource,
    CallSource,
    CellSource,
    ComputedSource,
    DefaultSource,
    GlobalSource,
    ItemSource,
    KeySource,
    LocalSource,
    ModuleGlobalSource,
    RandomValueSource,
    SizeSource,
    Source,
    WeakrefSource,
    call_text,
)

_MODULE_DICTS = frozenset(("_modules", "_parameters", "_buffers"))
_BEHIND = frozenset(("proxied", "mapping_of", "tensor_of"))
"""Functions to an object that the display name need not mention."""
_LONGEST = 100
_BLOCK = re.compile(r"(async |)(if|elif|for|with|while|class|def|match)\b.*:( *#.*)?$")
"""Statements that begin a block: messages quote their first line only."""


def display_name(source: Source) -> str:
    """The object behind `source` as the user would write it; attributes of modules without the dicts that hold them."""
    if isinstance(source, (LocalSource, GlobalSource, CellSource, WeakrefSource)):
        return source.name
    if isinstance(source, ModuleGlobalSource):
        return f"{source.module}.{source.name}"
    if isinstance(source, AttrSource):
        return f"{display_name(source.owner)}.{source.name}"
    if isinstance(source, ItemSource):
        return _item(source)
    if isinstance(source, SizeSource):
        which = "" if source.kind == "storage_offset" else source.dimension
        return f"{display_name(source.owner)}.{source.kind}({which})"
    if isinstance(source, CallSource) and source.function in _BEHIND:
        return display_name(source.owner)
    if isinstance(source, CallSource):
        return f"{source.function}({display_name(source.owner)})"
    if isinstance(source, ComputedSource):
        return call_text(source.function, [display_name(arg) for arg in source.args])
    if isinstance(source, RandomValueSource):
        return source.text
    if isinstance(source, KeySource):
        return f"key {source.index} of {display_name(source.owner)}"
    if isinstance(source, DefaultSource):
        which = source.key if isinstance(source.key, str) else f"number {source.key}"
        return f"the default {which} of {display_name(source.owner)}"
    return source.expression


def _item(source: ItemSource) -> str:
    owner = source.owner
    if isinstance(owner, AttrSource) and owner.name in (*_MODULE_DICTS, "__dict__") and isinstance(source.key, str):
        name = f"{display_name(owner.owner)}.{source.key}"
        return re.sub(r"\.(\d+)$", r"[\1]", name)
    if isinstance(owner, CallSource) and owner.function == "values_of":
        return f"value {source.key} of {display_name(owner.owner)}"
    return f"{display_name(owner)}[{source.key_text}]"


def line_of(location: Location) -> str:
    """The text of the line, "" when the file is not there."""
    return linecache.getline(location.file, location.line).strip()


def expression_of(location: Location) -> str:
    """The text between the location's columns, on one line; the whole line where no columns are known."""
    if location.column < 0 or location.end_column < 0:
        return line_of(location)
    if location.end_line > location.line and _BLOCK.match(line_of(location)):
        return line_of(location)
    lines = [linecache.getline(location.file, number) for number in range(location.line, location.end_line + 1)]
    if not lines or not lines[0]:
        return ""
    encoded = [line.encode() for line in lines]  # columns count bytes
    encoded[-1] = encoded[-1][: location.end_column]
    encoded[0] = encoded[0][location.column :]
    text = " ".join(part.decode(errors="replace").strip() for part in encoded)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

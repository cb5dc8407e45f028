"""Enables one fault in a child process: this folder is on its PYTHONPATH, the environment names the fault.

Each patch is applied right after its module has been loaded.
"""
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location

NAME = os.environ.get("PTDEBUG_PLANTED", "")


class _Planter(MetaPathFinder):
    """Finds the modules that the fault changes, and lets them be changed once they are loaded."""

    def __init__(self, patches):
        self.patches = patches
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        own = [patch for patch in self.patches if patch.module == name]
        if not own or self.busy:
            return None
        self.busy = True
        try:
            spec = find_spec(name)
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, own)
        return spec


class _Loader(Loader):
    def __init__(self, loader, patches):
        self.loader, self.patches = loader, patches

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        for patch in self.patches:
            kept = patch.applied()
            kept.__enter__()  # and never left
            KEPT.append(kept)


KEPT = []

if NAME:
    here = os.path.dirname(os.path.abspath(__file__))
    spec = spec_from_file_location("planted_bugs", os.path.join(here, "__init__.py"), submodule_search_locations=[here])
    sys.modules["planted_bugs"] = module_from_spec(spec)
    from planted_bugs.faults import FAULTS

    sys.meta_path.insert(0, _Planter(FAULTS[NAME].patches))

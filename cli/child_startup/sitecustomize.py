"""Runs as a Python process below `ptdebug run` starts: nothing happens until it imports torch, and then it is recorded
into its parent's recording. `cli/subprocesses.py` puts this folder on the path of children.

Another interpreter, with another ptdebug or none, is left alone. The program does not see the two variables, but its
own children inherit them. Then the `sitecustomize` that would have run, if there is one.
"""
# Any Python may start this: nothing of ptdebug is imported here, and nothing that is not in all of its versions.
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VARIABLE, PATH = "PTDEBUG_CHILD", "PYTHONPATH"


class AtTorch:
    """A finder that loads ptdebug once the program imports torch."""

    def __init__(self, facts):  # type: ignore[no-untyped-def]
        self.facts = facts
        self.waits = True

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Only torch is of interest."""
        if name != "torch" or not self.waits:
            return None
        from importlib.util import find_spec

        self.waits = False
        if self in sys.meta_path:  # the program may have put another list there
            sys.meta_path.remove(self)
        try:
            self.start()
        except Exception as error:  # the program comes first
            try:
                sys.stderr.write(f"ptdebug: a child process is not recorded: {type(error).__name__}: {error}\n")
            except (AttributeError, OSError, ValueError):  # it has no stderr, or has closed it
                pass
        return find_spec(name)

    def start(self):  # type: ignore[no-untyped-def]
        """Load the ptdebug of the parent, wherever it is."""
        from importlib.util import module_from_spec, spec_from_file_location

        package = self.facts["package"]
        if "ptdebug" not in sys.modules:
            spec = spec_from_file_location("ptdebug", os.path.join(package, "__init__.py"),
                                           submodule_search_locations=[package])
            sys.modules["ptdebug"] = module = module_from_spec(spec)  # type: ignore[arg-type]
            spec.loader.exec_module(module)  # type: ignore[union-attr]
        from ptdebug.cli.subprocesses import start_below

        start_below(self.facts)


def prepare():  # type: ignore[no-untyped-def]
    """Hide what made Python run this, and wait for torch."""
    import json

    if VARIABLE not in os.environ:  # not started below ptdebug
        return
    facts = json.loads(os.environ[VARIABLE])
    if facts["python"] != [sys.version, sys.prefix]:
        return
    inherited = os.environ.pop(VARIABLE), os.environ[PATH]
    if facts["path"] is None:
        del os.environ[PATH]
    else:
        os.environ[PATH] = facts["path"]
    os.putenv(VARIABLE, inherited[0])
    os.putenv(PATH, inherited[1])
    sys.meta_path.insert(0, AtTorch(facts))


sys.path[:] = [entry for entry in sys.path if entry != HERE]
try:
    prepare()
except (KeyError, TypeError, ValueError):  # another version of ptdebug started it, and records it or not
    pass
_own = sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401  # raises what the interpreter expects where there is no other

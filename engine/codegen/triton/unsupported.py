"""The one exception of this package that is an answer and not a bug."""


class TritonUnsupported(Exception):
    """This group has no Triton form; the message says why. Its caller runs it another way and records the reason."""

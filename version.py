"""The version of ptdebug."""

__version__ = "0.1.0"

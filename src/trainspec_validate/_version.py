"""The versions of this tool and of the specification that it implements."""

__version__ = "0.2.0"
SPECIFICATION_VERSION = "1.0-draft"

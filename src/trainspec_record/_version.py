"""The versions of the recorder and of the specification whose streams it writes."""

__version__ = "0.1.0"
SPECIFICATION_VERSION = "1.0-draft"

"""Feeds damaged input to every reader and command, and tells what comes of it other than an answer."""

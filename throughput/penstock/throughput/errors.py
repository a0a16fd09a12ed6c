"""What is wrong with a profile or a question about one."""

from __future__ import annotations


class ProfileError(ValueError):
    """A profile that cannot be read or used: the text names the field, the value and the rule."""

"""What a shell would run, as words with their places in the text: enough to find one command.

Nothing is expanded. Quotes, escapes, ``$(...)``, comments and continued lines are read as POSIX
shells read them, so that a word can be replaced and all else stay as it was written.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

_OPERATORS: Final = re.compile(r"&&|\|\||;;|\|&|[;|&()\n]")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_CLOSING: Final = {"(": ")", "{": "}"}
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BEFORE_COMMANDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "{", "!", "exec", "time", "nohup", "env"}
)


@dataclass(frozen=True)
class Word:
    """One word, or one operator, and where it stands."""

    start: int
    end: int
    raw: str
    operator: bool = False

    @property
    def value(self) -> str:
        """The word without its quotes; variables stay as they are."""
        try:
            return "".join(shlex.split(self.raw)) if self.raw else ""
        except ValueError:
            return self.raw


@dataclass(frozen=True)
class Simple:
    """A simple command: what stands before it, and its words.

    Attributes:
        before: assignments, and words such as ``exec``.
        words: the command itself.
        last: whether the shell has nothing to do after it.
    """

    before: tuple[Word, ...]
    words: tuple[Word, ...]
    last: bool


def commands(text: str) -> list[Simple]:
    """The simple commands of a text.

    Raises:
        ValueError: a quote or a parenthesis is not closed.
    """
    found = _words(text)
    result: list[Simple] = []
    segment: list[Word] = []
    depth = 0
    bounds = [*found, Word(len(text), len(text), "\n", operator=True)]
    for index, word in enumerate(bounds):
        if not word.operator:
            segment.append(word)
            continue
        if segment:
            rest = [one for one in bounds[index:] if one.raw != "\n"]
            result.append(_simple(segment, last=not depth and not rest))
            segment = []
        depth += {"(": 1, ")": -1}.get(word.raw, 0)
    return result


def _simple(segment: list[Word], last: bool) -> Simple:
    count = 0
    for word in segment:
        if not (ASSIGNMENT.match(word.raw) or word.raw in _BEFORE_COMMANDS):
            break
        count += 1
    return Simple(tuple(segment[:count]), tuple(segment[count:]), last)


def _words(text: str) -> list[Word]:
    found: list[Word] = []
    at = 0
    while at < len(text):
        if match := _BLANK.match(text, at) or _COMMENT.match(text, at):
            at = match.end()
        elif match := _OPERATORS.match(text, at):
            if text.startswith("&>", at):
                at = _end_of_word(text, at + 2)
                continue
            found.append(Word(at, match.end(), match[0], operator=True))
            at = match.end()
        else:
            end = _end_of_word(text, at)
            found.append(Word(at, end, text[at:end]))
            at = end
    return found


def _end_of_word(text: str, at: int) -> int:
    while at < len(text):
        letter = text[at]
        if letter in " \t\n;|()":
            return at
        if letter == "&" and text[at - 1] not in "<>":
            return at
        at = _past(text, at)
    return at


def _past(text: str, at: int) -> int:
    """Past one letter, or past all that belongs to it."""
    letter = text[at]
    if letter == "\\":
        return min(at + 2, len(text))
    if letter in "'`":
        return _closed(text, text.find(letter, at + 1)) + 1
    if letter == '"':
        at += 1
        while at < len(text) and text[at] != '"':
            at = _past(text, at) if text[at] in "\\$`" else at + 1
        return _closed(text, at if at < len(text) else -1) + 1
    if letter == "$" and text[at + 1 : at + 2] in ("(", "{"):
        return _past_brackets(text, at + 1)
    return at + 1


def _past_brackets(text: str, at: int) -> int:
    opening = text[at]
    depth = 0
    while at < len(text):
        if text[at] in (opening, _CLOSING[opening]):
            depth += 1 if text[at] == opening else -1
            at += 1
            if not depth:
                return at
        else:
            at = _past(text, at)
    return _closed(text, -1)


def _closed(text: str, at: int) -> int:
    if at < 0:
        raise ValueError("a quote or a bracket is not closed: no shell would read it")
    return at

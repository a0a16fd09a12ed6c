"""From the view to HTML. Everything that comes from outside is escaped."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from penstock.api.page.reference import Reference
from penstock.api.page.view import PageView
from penstock.base.enums import JobPhase

_QUOTED: Final = re.compile(r"(`{1,2})([^`]+)\1")


def _with_code(text: str) -> Markup:
    """Escaped text, with what stands in backticks as code."""
    # Escaped before it is marked.
    return Markup(_QUOTED.sub(r"<code>\2</code>", str(escape(text))))  # noqa: S704


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("penstock.api.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["with_code"] = _with_code
    return environment


@cache
def stylesheet() -> bytes:
    """The style sheet."""
    return files("penstock.api.page").joinpath("page.css").read_bytes()


def page(view: PageView, *, caller: str, session: bool) -> str:
    """The page."""
    template = _environment().get_template("page.html")
    return template.render(
        view=view, caller=caller, session=session, phases=[phase.value for phase in JobPhase]
    )


def login(problem: str = "") -> str:
    """The question who calls."""
    return _environment().get_template("login.html").render(problem=problem)


def reference(contents: Reference) -> str:
    """The reference of the API."""
    return _environment().get_template("reference.html").render(reference=contents)

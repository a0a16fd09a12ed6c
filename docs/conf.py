"""How Sphinx builds these pages (``make docs``: build/docs/index.html); warnings are errors."""

from __future__ import annotations

project = "Penstock"
author = "The Penstock authors"
project_copyright = "The Penstock authors"

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["reference/generate.py"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "Penstock"
html_static_path = ["pictures"]
html_extra_path = ["openapi.json"]
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

nitpicky = True

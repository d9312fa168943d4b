"""Sphinx settings. `make docs` builds the site without network access."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from docs.entries import ENTRIES  # noqa: E402  (needs the path above)
from docs.gallery import draw_gallery  # noqa: E402
from docs.notebooks import write_notebooks  # noqa: E402
from docs.reference import public_names, write_reference  # noqa: E402
from gpubeton import __version__  # noqa: E402

project = "gpubeton"
author = "The gpubeton developers"
project_copyright = "The gpubeton developers; Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["pictures"]
templates_path = ["templates"]
nitpicky = True

html_theme = "furo"
html_title = "gpubeton"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["style"]
html_css_files = ["site.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

autosummary_generate = False  # docs/reference.py writes the pages
autodoc_typehints = "none"  # the docstrings have types and shapes
autodoc_inherit_docstrings = False
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

_PICTURES = HERE / "pictures"
#: The only place with this address: pages link to files by their relative paths.
_REPOSITORY = "https://github.com/gpubeton/gpubeton"


def write_pages(app: Sphinx, config: Config) -> None:
    """Write the generated files: the reference, the notebooks and the gallery."""
    write_reference(HERE / "api")
    write_notebooks(HERE / "notebooks")
    draw_gallery(_PICTURES, _PICTURES / "gallery.inc")


def adapt_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Link notebooks to their pages and other files to the repository; show a <picture> as an image for each theme."""
    pair = r'<picture>\n.*?srcset="(?P<dark>[^"]+)">\n.*?alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\n</picture>'
    image = "```{{image}} {}\n:alt: {}\n:class: only-{}\n```"

    def images(found: re.Match[str]) -> str:
        both = "\n\n".join(image.format(found[theme], found["alt"], theme) for theme in ("light", "dark"))
        return f":::{{container}} chart\n{both}\n:::"

    def link(found: re.Match[str]) -> str:
        target = (HERE / name).parent.joinpath(found[1]).resolve()
        address = f"{_REPOSITORY}/blob/main/{target.relative_to(HERE.parent)}"
        return found[0] if target.is_relative_to(HERE) else f"]({address}"

    text = source[0].replace("../examples/notebooks/", "notebooks/").replace(".ipynb)", ".md)")
    text = re.sub(r"\]\((\.\./[^)#]+)", link, re.sub(pair, images, text))
    source[0] = text.replace("<this repository>", _REPOSITORY)


def name_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = ()
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Link a word in `single backticks` of a docstring if it is a public name; otherwise show it as code."""
    full = _FULL_NAMES.get(text.partition(".")[0])
    code = nodes.literal(rawtext, text)
    if full is None or not text.replace(".", "").isidentifier():
        return [code], []
    target = full + text[len(text.partition(".")[0]) :]
    link = addnodes.pending_xref(
        rawtext, code, refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=False
    )
    link["refdoc"] = inliner.document.settings.env.docname
    return [link], []


def add_picture(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show the gallery's picture of a transform on its page."""
    short = name.rpartition(".")[2]
    entry = next((entry for entry in ENTRIES if entry.name == short), None)
    if what == "class" and entry is not None and _FULL_NAMES.get(short) == name:
        lines += ["", ".. code-block:: python", "", f"   {entry.code}", ""]
        if entry.is_text:
            lines += ["", f".. literalinclude:: /pictures/{short}.txt", "   :language: text", ""]
        else:
            lines += ["", f".. image:: /pictures/{short}.webp", f"   :alt: {short}: before and after", ""]


def leave_out_text_of_types(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Leave out Python's text about the type of a constant, such as that of tuples."""
    if what == "data" and lines and lines[0] == (type(obj).__doc__ or "").strip().partition("\n")[0]:
        lines.clear()


def add_type(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show the type of an attribute of a result, which its comment does not have."""
    module, _, path = name.rpartition(".")[0].rpartition(".")
    if what == "attribute" and lines:
        annotations = getattr(getattr(importlib.import_module(module), path, None), "__annotations__", {})
        if kind := annotations.get(name.rpartition(".")[2]):
            lines[0] = f"``{kind}``: {lines[0]}"


def break_names(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let a phone break long names in headings and signatures between their words."""
    names = re.compile(r'(?:<h\d>|<span class="pre">)[A-Za-z]{16,}')
    between = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
    context["body"] = names.sub(lambda found: between.sub("<wbr>", found[0]), context.get("body", ""))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this file."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", adapt_source)
    app.connect("autodoc-process-docstring", add_picture, priority=900)  # after numpydoc
    app.connect("autodoc-process-docstring", add_type)
    app.connect("autodoc-process-docstring", leave_out_text_of_types)
    app.connect("html-page-context", break_names)
    app.add_role("name", name_role)
    return {"parallel_read_safe": False}


_FULL_NAMES = {full.rpartition(".")[2]: full for full in public_names()}
default_role = "name"

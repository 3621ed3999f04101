"""Sphinx extension: formulas as MathML, which browsers draw themselves, without a script.

The pages can be read from a disk, without a network. docutils does the work; a formula that it
does not understand is a warning, which `make docs` treats as an error.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

log = logging.getLogger(__name__)

SHORT_FRACTION = re.compile(r"(\\[td]?frac)(\d)(\w)")


def mathml(node: nodes.Element, as_block: bool = False) -> str:
    """Return the formula of a node as an element `math`."""
    formula = node.astext().replace(r"\dots", r"\ldots")  # which docutils does not know, as
    formula = SHORT_FRACTION.sub(r"\1{\2}{\3}", formula)  # it takes the 12 of \frac12 for a number
    try:
        return tex2mathml(formula, as_block)
    except MathError as error:
        log.warning("the formula %r is not understood: %s", formula, error, location=node)
        return ""


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(f'<span class="math notranslate">{mathml(node)}</span>')
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="math notranslate"))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(f"{mathml(node, as_block=True)}</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer the renderer, which `html_math_renderer` in conf.py takes."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

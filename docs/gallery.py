"""Sphinx extension: runs examples/gallery and makes a page of each script and what it printed.

A script is a module whose docstring is a title, an empty line and some words in MyST. It runs in a
folder of its own, below docs/generated/gallery, with warnings as errors: what it writes there can
be linked to, and figures of matplotlib that it leaves open are shown. A script that fails stops
the build.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import warnings
from contextlib import chdir, redirect_stdout
from pathlib import Path
from runpy import run_path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "examples" / "gallery"

INDEX = """# Gallery

Short scripts, run when these pages are built, with what they printed and drew.

{pictures}

```{{toctree}}
:maxdepth: 1
:hidden:

{names}
```
"""


def run(script: Path, folder: Path) -> tuple[str, list[str]]:
    """Run a script in `folder`; return what it printed and the names of its figures."""
    os.environ["MPLBACKEND"] = "agg"
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed), warnings.catch_warnings(action="error"):
        run_path(str(script), run_name="__main__")
        figures = []
        if plt := sys.modules.get("matplotlib.pyplot"):
            for number in plt.get_fignums():
                figures.append(f"{script.stem}_{number}.svg")
                plt.figure(number).savefig(figures[-1])
            plt.close("all")
    return printed.getvalue(), figures


def page(script: Path, folder: Path) -> str:
    """Run a script and return its page."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, words = (ast.get_docstring(tree) or "").partition("\n\n")
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
    printed, figures = run(script, folder)
    parts = [f"# {title}", words, f"```python\n{code}\n```", f"```text\n{printed.rstrip()}\n```"]
    parts += [f"![{title}]({name})" for name in figures]
    return "\n\n".join([*parts, f"The script is `examples/gallery/{script.name}`.\n"])


def build(app: Any) -> None:
    """Write the pages, and one that lists them."""
    folder = Path(app.srcdir, "generated", "gallery")
    folder.mkdir(parents=True, exist_ok=True)
    scripts = sorted(SCRIPTS.glob("*.py"))
    pictures = []
    for script in scripts:
        text = page(script, folder)
        (folder / f"{script.stem}.md").write_text(text, encoding="utf-8")
        pictures.append(preview(script.stem, text))
    index = INDEX.format(
        pictures="\n\n".join(pictures), names="\n".join(script.stem for script in scripts)
    )
    (folder / "index.md").write_text(index, encoding="utf-8")


def preview(name: str, text: str) -> str:
    """Return what the list of pages shows of one: its title and its first picture, if any."""
    title = text.partition("\n")[0].removeprefix("# ")
    figure = re.search(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE)
    picture = f"\n\n[![{title}]({figure[1]}){{width=420px}}]({name}.md)" if figure else ""
    return f"## [{title}]({name}.md){picture}"


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx when to do it: before it looks for pages."""
    app.connect("builder-inited", build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # gallery.py, mathml.py

project = "otmoe"
author = "The otmoe developers"
copyright = f"2026, {author}"
release = version = installed_version("otmoe")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "matplotlib.sphinxext.plot_directive",
    "gallery",
    "mathml",
    "myst_parser",
    "numpydoc",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"otmoe {release}"
html_math_renderer = "mathml"  # no script, no network
html_static_path = ["_static"]
html_css_files = ["math.css"]
html_show_sourcelink = False

myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the numpydoc sections say it, with shapes
# scikit-learn writes the set_*_request methods itself, with references into its own guide.
autodoc_default_options = {
    "exclude-members": "set_fit_request, set_predict_request, set_predict_log_proba_request, "
    "set_predict_proba_request, set_score_request",
}
numpydoc_show_class_members = False

# The pictures of docs/plots.md are drawn at every build.
plot_formats = [("png", 110)]
plot_html_show_formats = False
plot_html_show_source_link = False

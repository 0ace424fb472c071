"""Settings of the documentation: `python docs/build.py` builds it."""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from docstrings import listed_names  # noqa: E402

import sinkprop  # noqa: E402

project = "sinkprop"
author = "the authors of sinkprop"
version = release = sinkprop.__version__
html_title = "sinkprop"
html_show_copyright = False
html_show_sphinx = False

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "commands",
    "docstrings",
    "outside",
]
bibtex_bibfiles = ["references.bib"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
exclude_patterns = ["_build", "_static", "architecture.md"]  # which is for contributors
smartquotes = False  # the straight quotes in "ndcg@10" are code
suppress_warnings = ["config.cache"]  # functions of docstrings.py in the configuration are not pickled

# Headings have the same anchors as on GitHub.
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Tutorials are executed in every build. An error in one is a warning, which fails the build.
os.environ.update(OMP_NUM_THREADS="1", SINKPROP_NUM_THREADS="1")
_ipython = tempfile.TemporaryDirectory()  # settings of the kernels: sharp pictures, and no log messages
_profile = Path(_ipython.name, "profile_default")
_profile.mkdir()
(_profile / "ipython_kernel_config.py").write_text(
    "c.InlineBackend.figure_formats = {'svg'}\nc.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8"
)
os.environ["IPYTHONDIR"] = _ipython.name
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"

# The API reference lists the names on the pages in api/.
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "alphabetical"}
autodoc_preserve_defaults = True
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
toc_object_entries_show_parents = "hide"
sinkprop_names = listed_names(HERE / "api")

# The site loads nothing from other hosts. MathJax is in _static; the README there states its origin.
mathjax_path = "mathjax/tex-chtml.js"
html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"
html_search_scorer = str(HERE / "_static" / "search.js")  # guides before the API, and the changelog last
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sinkprop", "alt_text": ""},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "collapse_navigation": True,
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "start": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"


def setup(app):
    app.connect("env-before-read-docs", _spread)


def _spread(app, env, docnames):
    """Separate the tutorials from each other, since neighbors are read, and executed, by one process."""
    tutorials = [name for name in docnames if name.startswith("tutorials/")]
    others = [name for name in docnames if name not in tutorials]
    for i, name in enumerate(tutorials):
        others.insert(i * (len(docnames) // len(tutorials)), name)
    docnames[:] = others

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
exclude_patterns = ["_build", "_static", "_templates"]
smartquotes = False  # quotes are part of what they stand around: "ndcg@10"
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # what docstrings.py hands to Sphinx is not pickled

# Pages. Anchors are those that GitHub gives to headings.
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Tutorials are run at every build; an error in one is a warning, which fails the build.
os.environ.update(OMP_NUM_THREADS="1", SINKPROP_NUM_THREADS="1")
_ipython = tempfile.TemporaryDirectory()  # settings of the kernels: sharp pictures, and no word of their own
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

# The reference. Its lists of names are those of the pages in api/.
autosummary_generate = True
autosummary_imported_members = False
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "alphabetical"}
autodoc_preserve_defaults = True
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
toc_object_entries_show_parents = "hide"
sinkprop_names = listed_names(HERE / "api")

# The site loads nothing from elsewhere: MathJax lies in _static, where its README says from where it came.
mathjax_path = "mathjax/tex-chtml.js"
html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sinkprop"},
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
html_sidebars = {"index": [], "results": [], "start": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"


def setup(app):
    app.connect("env-before-read-docs", _spread)


def _spread(app, env, docnames):
    """The tutorials apart from each other: what stands together is read, and run, by one process."""
    tutorials = [name for name in docnames if name.startswith("tutorials/")]
    others = [name for name in docnames if name not in tutorials]
    for i, name in enumerate(tutorials):
        others.insert(i * (len(docnames) // len(tutorials)), name)
    docnames[:] = others

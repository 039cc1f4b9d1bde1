"""Configuration of Sphinx, which builds the documentation (`make docs`) without network access."""

from syncsvc import __version__

project = "syncsvc"
copyright = "the authors of syncsvc"
release = __version__
html_theme = "furo"
html_title = f"syncsvc {release}"
html_show_sourcelink = False
# Flags, options and field names keep their hyphens and quotes.
smartquotes = False
# Code blocks that show JSON answers shorten them with "...".
suppress_warnings = ["misc.highlighting_failure"]
# `make docs` builds the manual pages, too.
man_pages = [
    ("reference/syncctl", "syncctl", "operate a sync of two MongoDB clusters", "", 1),
    ("reference/syncsvc", "syncsvc", "sync one MongoDB cluster to another", "", 1),
    ("reference/syncsvc-verifier", "syncsvc-verifier", "compare two MongoDB clusters", "", 1),
]

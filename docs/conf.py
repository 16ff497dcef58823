"""The documentation as a site: ``make docs``. No network is needed to build it."""

from importlib.metadata import version as installed

project = "saltext-ha"
author = "The saltext-ha maintainers"
copyright = author
version = release = installed("saltext-ha")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
# Links such as page.md#a-heading, as other readers of Markdown take them.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
highlight_language = "none"

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = f"saltext-ha {release}"
html_show_sphinx = False
html_show_copyright = False

# make man: only what a person calls by itself.
man_pages = [
    ("salt-ha", "salt-ha", "ask and steer a group of Salt masters", author, "1"),
]

# Some pages in Chinese: docs/locale, which `make translations` brings up to date with the sources.
locale_dirs = ["locale"]
gettext_compact = False
gettext_location = False
gettext_uuid = False

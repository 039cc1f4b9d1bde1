"""The version of the project, shared by both programs and the package metadata."""

VERSION = "0.1.0"
# The address of the documentation, to which answers link.
DOCUMENTATION = "https://example.org/syncsvc/docs"

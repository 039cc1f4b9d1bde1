"""The version of the project, shared by both programs and the package metadata."""

VERSION = "0.1.0"

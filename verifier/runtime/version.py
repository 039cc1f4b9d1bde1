"""The version of the project, which both programs and the package metadata have."""

VERSION = "0.1.0"

"""Tests of the pages in a real browser: `make test-browser`. They need Chromium, so `make test` leaves them out."""

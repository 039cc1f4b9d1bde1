"""The HTML page that shows the report of a sync."""

from __future__ import annotations

from pathlib import Path

from verifier.page.report_page import ReportPage

PAGE = ReportPage(Path(__file__).with_name("report.html"))

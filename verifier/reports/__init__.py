"""The report of a check: `lines` as text for a terminal and the log, `report` as JSON, `rendering` as an HTML page."""

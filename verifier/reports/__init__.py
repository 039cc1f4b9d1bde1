"""The report of a check: `lines` for a terminal and the log, `report` for programs, and its page for people."""

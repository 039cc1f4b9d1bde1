"""The demo: `python -m syncsvc.sandbox.demo` shows a whole sync under live writes. Needs the extra `demo`."""

"""`syncctl`, the operator's tool: a client of the HTTP API, local or remote.

From the rest of the project, it imports only `syncsvc.request_file`, so it can show only data that every client of the
API gets.

- `cli` is the entry point. The commands are in `of_sync`, `lists`, `cutover`, `examining` and `of_verifier`.
- `tool` defines the options that all commands share, prints answers, and turns errors into exit statuses (`exits`).
  `options` defines the options that several commands share.
- `client` sends the requests. `request_file` reads the body of a request from a file.
- `advice` says why a commit is not possible, and what to do next. `rates` computes rates from successive answers.
- `facts` selects the facts about a sync or a check to show. `tables` renders facts and other answers as tables.
  `limits` builds the request of `syncctl limit` and renders its answer. `text` formats sizes, durations and names.
- `watching` polls a daemon or a verifier and shows its progress until a condition holds; `following` does this for a
  sync.
- `doctor` examines a daemon and its clusters. `archive` collects the files of `syncctl diagnose`, and `redaction`
  removes the secrets from them. `reporting` writes the report of a sync or a check to a file.
"""

"""`syncctl`, the operator's tool: a client of the HTTP API, local or remote.

It imports nothing of the services, so it shows only what any other client of the API could.

- `cli` is the entry point, and holds the commands for a sync; `of_verifier` holds those for the verifier.
- `tool` has the options that all commands share, prints answers, and turns errors into exit statuses (`exits`).
- `client` sends the requests. `job` reads the options of a start from a file.
- `advice` says why a commit is not possible, and what to do next. `pace` computes rates from successive answers.
- `facts` selects what an operator watches of a sync or a check, and `views` renders it, and other answers, as tables.
  `text` has the forms of sizes, durations and names.
- `watching` follows a sync or a check until a condition holds.
- `doctor` examines a daemon and its clusters, `archive` collects the files of `syncctl diagnose`, without secrets.
"""

"""Infrastructure of both processes: threads, retries, logs, metrics, options, HTTP serving. Independent of MongoDB."""

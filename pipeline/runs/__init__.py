"""One job in a child process: `parent` supervises, `worker` works.

Both share `protocol` and `units`, and nothing else of each other. `parent` loads no native library,
`worker` no polars. Imports `results` (`parent` only), `generation` and what is below them.
"""

__all__ = ["parent", "protocol", "settings"]

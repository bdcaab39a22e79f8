"""One job in a child process: `parent` supervises, `worker` works.

They share `protocol`, `units` and `settings`, and nothing else. `parent` loads no native library,
`worker` no polars. Imports `results` (`parent` only), `generation` and what is below them.
"""

__all__ = ["parent", "protocol", "settings"]

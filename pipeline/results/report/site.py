"""Pages as files: Jinja2 with autoescaping, data as JSON, scripts inlined, nothing from outside.

Every page has a content security policy: only scripts with a listed hash run, and nothing is
fetched. So a model's text can neither run nor send requests, even if an escape were missing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import altair
import jinja2
import vl_convert
from markupsafe import Markup

from ...model.errors import ReportError

_TEMPLATES = Path(__file__).parent / "templates"
_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "img-src data:; style-src 'unsafe-inline'; script-src {}"
)
TABLE, CHART = "table", "chart"
"""The libraries that a page can use."""


@dataclass(frozen=True)
class Page:
    """One file of the site."""

    file: str
    """Its path under the site's folder, with `/`."""
    template: str
    title: str
    values: Mapping[str, Any]
    """The values of the template."""
    script: str | None = None
    """The page's own script in `templates/`, without its suffix."""
    needs: tuple[str, ...] = field(default=())
    """`TABLE`, `CHART`."""
    section: str = ""
    """File of the navigation entry that it belongs to; empty if that is its own file."""


def embed_json(json_text: str) -> Markup:
    """JSON text for a `<script type="application/json">`: nothing in it can end the element."""
    for char in "<>&'\u2028\u2029":
        json_text = json_text.replace(char, f"\\u{ord(char):04x}")
    return Markup(json_text)


def to_json(value: Any) -> str:
    """A value as the compact JSON that `embed_json` takes."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


class Site:
    """Writes pages into a folder."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        self.folder = folder
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["embed_json"] = lambda value: embed_json(to_json(value))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        self._common = common

    def write(self, page: Page) -> Path:
        """Render one page; returns its path."""
        depth = page.file.count("/")
        scripts = [*_libraries(page.needs), _own("base")]
        if page.script is not None:
            scripts.append(_own(page.script))
        styles = [_text("report.css")]
        if TABLE in page.needs:
            styles.insert(0, _table()[1])
        made = self._environment.get_template(page.template).render(
            **self._common,
            **page.values,
            title=page.title,
            root="../" * depth,
            section=page.section or page.file,
            policy=_POLICY.format(" ".join(map(_digest, scripts)) or "'none'"),
            scripts=[Markup(script) for script in scripts],
            styles=[Markup(style) for style in styles],
        )
        path = self.folder / page.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
        return path


def _libraries(needs: tuple[str, ...]) -> list[str]:
    made = {TABLE: lambda: _table()[0], CHART: _chart}
    return [made[name]() for name in needs]


@cache
def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _own(name: str) -> str:
    return _inline(_text(f"{name}.js"))


@cache
def _table() -> tuple[str, str]:
    """DataTables as itables bundles it: the script, with the class as a global, and the style."""
    wheel = importlib.metadata.distribution("itables")
    folder = Path(str(wheel.locate_file("itables/html")))
    script = (folder / "dt_bundle.js").read_text(encoding="utf-8")
    exports = re.search(r"export\s*\{([^}]*)\}\s*;?", script)
    name = re.search(r"([\w$]+) as default\b", exports[1]) if exports else None
    if exports is None or name is None:
        raise ReportError(
            f"itables {wheel.version} bundles DataTables in a way this byte-exact does not know. "
            "Install the version of constraints.txt."
        )
    script = script.replace(exports[0], f"globalThis.DataTable={name[1]};")
    return _inline(script), (folder / "dt_bundle.css").read_text(encoding="utf-8")


@cache
def _chart() -> str:
    """Vega, Vega-Lite in Altair's version, and Vega-Embed, bundled by vl-convert."""
    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    globals_ = "window.vegaEmbed=vegaEmbed;"
    return _inline(vl_convert.javascript_bundle(globals_, vl_version=version))


def _inline(script: str) -> str:
    """Escape `</script` and `<!--` in a script, so that they cannot end or hide its element."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"

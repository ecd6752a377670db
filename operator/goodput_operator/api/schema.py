"""From a pydantic model to a structural schema, as a CustomResourceDefinition needs it.

Pydantic writes ``$ref`` and ``anyOf`` with null, and titles; a structural schema has every type in
its place and none of these. https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/
custom-resource-definitions/#specifying-a-structural-schema
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_INT32_MAX = 2**31 - 1
_NULL = {"type": "null"}
_KEYWORD_ORDER = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
)


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """Structural schema of a model.

    With ``defaults`` the API server fills in the model's defaults; without, it leaves fields absent
    (as in a status, whose fields belong to whoever applied them).
    """
    raw = model.model_json_schema(by_alias=True)
    return _Flattener(raw.get("$defs", {}), defaults).flatten(raw)


class _Flattener:
    def __init__(self, definitions: Mapping[str, Schema], defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def flatten(self, node: Mapping[str, Any]) -> Schema:
        node = self._resolve(node)
        if "properties" in node:
            self._flatten_properties(node)
        for keyword in ("items", "additionalProperties"):
            if isinstance(node.get(keyword), dict):
                node[keyword] = self.flatten(node[keyword])
        if node.get("default") is None or not self._defaults:
            node.pop("default", None)
        if node.get("type") == "integer" and "format" not in node:
            node["format"] = "int32" if node.get("maximum", 2**63) <= _INT32_MAX else "int64"
        if "description" in node:
            node["description"] = _plain(node["description"])
        return dict(sorted(node.items(), key=_keyword_order))

    def _resolve(self, node: Mapping[str, Any]) -> Schema:
        """Inline references and optional types; what stands beside them wins."""
        resolved = {key: value for key, value in node.items() if key not in ("title", "$defs")}
        while "$ref" in resolved or _is_optional(resolved):
            if "$ref" in resolved:
                name = resolved.pop("$ref").rsplit("/", 1)[1]
                inner = self._definitions[name]
            else:
                (inner,) = (choice for choice in resolved.pop("anyOf") if choice != _NULL)
            resolved = {**inner, **resolved}
            resolved.pop("title", None)
        if "const" in resolved:
            resolved["enum"] = [resolved.pop("const")]
        return resolved

    def _flatten_properties(self, node: Schema) -> None:
        required = node.get("required", ())
        flat = {}
        for name, child in node["properties"].items():
            flat[name] = self.flatten(child)
            made_by_factory = "$ref" in child and "default" not in child and name not in required
            if made_by_factory and self._defaults:
                filled = {**flat[name], "default": _defaults_of(flat[name])}
                flat[name] = dict(sorted(filled.items(), key=_keyword_order))
        node["properties"] = flat


def _defaults_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """An object of which every field has its default; written out, since rules are run on it."""
    return {
        name: child["default"] for name, child in node["properties"].items() if "default" in child
    }


def _is_optional(node: Mapping[str, Any]) -> bool:
    return _NULL in node.get("anyOf", ())


def _keyword_order(item: tuple[str, Any]) -> tuple[int, str]:
    keyword = item[0]
    known = keyword in _KEYWORD_ORDER
    return (_KEYWORD_ORDER.index(keyword) if known else len(_KEYWORD_ORDER), keyword)


def _plain(docstring: str) -> str:
    """Paragraphs of one line each, without reStructuredText's double back-quotes."""
    paragraphs = re.split(r"\n\s*\n", docstring.replace("``", "`").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

"""Takes endpoints on nodes under maintenance out of use: kube-proxy gets EndpointSlices without them, or with them marked
as not ready. A Service keeps all endpoints with the annotation `example.com/drain: ignore`."""

import json

from componentize_py_types import Err
from wit_world.exports import Module as ModuleProtocol
from wit_world.exports.module import Description, Lookup, Plan, Verdict
from wit_world.imports import cluster, log
from wit_world.imports.objects import Column, Object, Path, Value_Boolean

DRAIN = "example.com/drain"

# Set by configure. The outcome of an object may depend only on the settings and on what filter reads.
node_label = ""
action = ""
paths: dict[str, Path] = {}


class Module(ModuleProtocol):
    def describe(self) -> Description:
        return Description(name="drain", version="0.1.0", summary="Takes endpoints on nodes under maintenance out of use")

    def configure(self, settings: str) -> Plan:
        global node_label, action, paths
        node_label, action = parse(settings)
        paths = {
            "service": Path.parse("metadata.labels['kubernetes.io/service-name']"),
            "name": Path.parse("metadata.name"),
            "nodes": Path.parse("endpoints[*].nodeName"),
            "ready": Path.parse("endpoints[*].conditions.ready"),
        }
        return Plan(
            matches=["kube-proxy/endpointslices#get;list;watch"],
            lookups=[
                Lookup("services", versions=[], name=None, label_selector=None, metadata_only=True, optional=False),
                Lookup("nodes", versions=[], name=None, label_selector=node_label, metadata_only=True, optional=False),
            ],
        )

    def filter(self, object: Object) -> Verdict:
        # The reads up to here are all that most objects cost, and the daemon replays them.
        nodes = cluster.find("nodes", None, node_label)
        if nodes.count() == 0:
            return Verdict.KEEP
        kind = object.kind()
        if kind != "EndpointSlice":
            raise Err(f"expected an EndpointSlice, got a {kind}: correct the match rules")
        # The Service that the slice names in its label.
        service = cluster.referent("services", object, paths["service"])
        match service and service.annotation(DRAIN):
            case None | "":
                pass
            case "ignore":
                return Verdict.KEEP
            case other:
                log.write(log.Level.WARN, f"annotation {DRAIN} of the Service: expected ignore, got {other}")

        # One host call reads a whole column, and one edit changes all rows.
        drained = set(values(nodes.column(paths["name"])))
        rows = [node in drained for node in values(object.column(paths["nodes"]))]
        if not any(rows):
            return Verdict.KEEP
        log.write(log.Level.DEBUG, f"endpoints of {object.name()} are on nodes under maintenance")
        if action == "unready":
            object.set_rows(paths["ready"], bitmap(rows), Value_Boolean(False))
        elif all(rows):
            return Verdict.HIDE
        else:
            object.retain(paths["nodes"], bitmap([not row for row in rows]))
        return Verdict.KEEP


def parse(text: str) -> tuple[str, str]:
    """Returns the settings. Raising Err rejects them; any other exception ends the instance."""
    settings = {"action": "remove"} | json.loads(text)
    for key, value in settings.items():
        if key not in ("nodeLabel", "action"):
            raise Err(f"{key}: unknown field")
        if not isinstance(value, str):
            raise Err(f"{key}: invalid type: expected a string")
    label = settings.get("nodeLabel")
    if label is None:
        raise Err("nodeLabel: missing field")
    if not label or "," in label:
        raise Err("nodeLabel: expected one label")
    if settings["action"] not in ("remove", "unready"):
        raise Err("action: unknown value: expected remove or unready")
    return label, settings["action"]


def values(column: Column) -> list[str | None]:
    """The rows of a column: `ends` counts bytes, and the top bit marks a row that is missing or null."""
    text, start, rows = column.text.encode(), 0, []
    for end in column.ends:
        absent, end = end >> 31, end & 0x7FFF_FFFF
        rows.append(None if absent else text[start:end].decode())
        start = end
    return rows


def bitmap(rows: list[bool]) -> bytes:
    """Row i is bit i % 8 of byte i / 8."""
    return sum(1 << i for i, row in enumerate(rows) if row).to_bytes((len(rows) + 7) // 8, "little")

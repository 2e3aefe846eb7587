"""Hides the objects whose annotation has the value "true"."""

import json

from componentize_py_types import Err
from wit_world.exports import Module as ModuleProtocol
from wit_world.exports.module import Description, Plan, Verdict
from wit_world.imports.objects import Object

# Set by configure, which the host calls once before it filters objects. Keep no other state between calls: the outcome
# of an object may depend only on the settings and on what filter reads.
annotation = ""


class Module(ModuleProtocol):
    def describe(self) -> Description:
        return Description(name="{{name}}", version="0.1.0", summary="Hides objects with an annotation")

    def configure(self, settings: str) -> Plan:
        global annotation
        annotation = parse(settings)
        return Plan(matches=["kube-proxy/services#get;list;watch"], lookups=[])

    def filter(self, object: Object) -> Verdict:
        return Verdict.HIDE if object.annotation(annotation) == "true" else Verdict.KEEP


def parse(text: str) -> str:
    """Returns the setting. Raising Err rejects the settings; any other exception ends the instance."""
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise Err(f"settings: {error}") from error
    if not isinstance(settings, dict):
        raise Err("settings: not an object")
    for key in settings:
        if key != "annotation":
            raise Err(f"{key}: unknown field")
    match settings.get("annotation"):
        case None | "":
            raise Err("annotation: missing")
        case str(name):
            return name
        case _:
            raise Err("annotation: not a string")

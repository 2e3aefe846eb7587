// Takes endpoints on nodes under maintenance out of use: kube-proxy gets EndpointSlices without them, or with them marked
// as not ready. A Service keeps all endpoints with the annotation `example.com/drain: ignore`.

import * as cluster from "weir:filter/cluster@0.1.0";
import * as log from "weir:filter/log@0.1.0";
import { Path } from "weir:filter/objects@0.1.0";

const DRAIN = "example.com/drain";

// Set by configure. The outcome of an object may depend only on the settings and on what filter reads.
let nodeLabel, action, paths;

export const module = {
  describe() {
    return { name: "drain", version: "0.1.0", summary: "Takes endpoints on nodes under maintenance out of use" };
  },

  configure: withTextErrors((settings) => {
    ({ nodeLabel, action } = parse(settings));
    paths = {
      service: Path.parse("metadata.labels['kubernetes.io/service-name']"),
      name: Path.parse("metadata.name"),
      nodes: Path.parse("endpoints[*].nodeName"),
      ready: Path.parse("endpoints[*].conditions.ready"),
    };
    return {
      matches: ["kube-proxy/endpointslices#get;list;watch"],
      lookups: [
        { resource: "services", versions: [], metadataOnly: true, optional: false },
        { resource: "nodes", versions: [], labelSelector: nodeLabel, metadataOnly: true, optional: false },
      ],
    };
  }),

  filter: withTextErrors((object) => {
    // The reads up to here are all that most objects cost, and the daemon replays them.
    const nodes = cluster.find("nodes", undefined, nodeLabel);
    if (nodes.count() === 0) return "keep";
    const kind = object.kind();
    if (kind !== "EndpointSlice") {
      throw new Error(`expected an EndpointSlice, got a ${kind}: correct the match rules`);
    }
    // The Service that the slice names in its label.
    const policy = cluster.referent("services", object, paths.service)?.annotation(DRAIN);
    if (policy === "ignore") return "keep";
    if (policy) log.write("warn", `annotation ${DRAIN} of the Service: expected ignore, got ${policy}`);

    // One host call reads a whole column, and one edit changes all rows.
    const drained = new Set(values(nodes.column(paths.name)));
    const rows = values(object.column(paths.nodes)).map((node) => drained.has(node));
    if (!rows.includes(true)) return "keep";
    log.write("debug", `endpoints of ${object.name()} are on nodes under maintenance`);
    if (action === "unready") {
      object.setRows(paths.ready, bitmap(rows), { tag: "boolean", val: false });
    } else if (!rows.includes(false)) {
      return "hide";
    } else {
      object.retain(paths.nodes, bitmap(rows.map((row) => !row)));
    }
    return "keep";
  }),
};

function parse(text) {
  const { nodeLabel, action = "remove", ...unknown } = JSON.parse(text);
  for (const key in unknown) throw new Error(`${key}: unknown field`);
  if (nodeLabel === undefined) throw new Error("nodeLabel: missing field");
  if (typeof nodeLabel !== "string") throw new Error("nodeLabel: invalid type: expected a string");
  if (!nodeLabel || nodeLabel.includes(",")) throw new Error("nodeLabel: expected one label");
  if (action !== "remove" && action !== "unready") {
    throw new Error("action: unknown value: expected remove or unready");
  }
  return { nodeLabel, action };
}

// The rows of a column: `ends` counts bytes of UTF-8, and the top bit marks a row that is missing or null.
function values({ text, ends }) {
  const bytes = new TextEncoder().encode(text);
  const decoder = new TextDecoder();
  let start = 0;
  return Array.from(ends, (marked) => {
    const end = marked & 0x7fffffff;
    const value = marked >>> 31 ? undefined : decoder.decode(bytes.subarray(start, end));
    start = end;
    return value;
  });
}

// Row i is bit i % 8 of byte i / 8.
function bitmap(rows) {
  const bytes = new Uint8Array(Math.ceil(rows.length / 8));
  rows.forEach((row, i) => {
    if (row) bytes[i >> 3] |= 1 << (i & 7);
  });
  return bytes;
}

// The contract has errors as text: a thrown Error would lose its message. The stack goes to the daemon's log.
function withTextErrors(call) {
  return (argument) => {
    try {
      return call(argument);
    } catch (error) {
      console.error(error.stack);
      throw error.payload ?? error.message ?? error;
    }
  };
}

// Hides the objects whose annotation has the value "true".

// Set by configure, which the host calls once before it filters objects. Keep no other state between calls: the outcome
// of an object may depend only on the settings and on what filter reads.
let annotation;

export const module = {
  describe() {
    return { name: "{{name}}", version: "0.1.0", summary: "Hides objects with an annotation" };
  },

  configure: withTextErrors((settings) => {
    annotation = parse(settings);
    return { matches: ["kube-proxy/services#get;list;watch"], lookups: [] };
  }),

  filter: withTextErrors((object) => (object.annotation(annotation) === "true" ? "hide" : "keep")),
};

function parse(text) {
  const { annotation, ...unknown } = JSON.parse(text);
  for (const key in unknown) throw new Error(`${key}: unknown field`);
  if (!annotation) throw new Error("annotation: missing");
  if (typeof annotation !== "string") throw new Error("annotation: not a string");
  return annotation;
}

// The contract has errors as text: a thrown Error would lose its message. The stack goes to the daemon's log.
function withTextErrors(call) {
  return (argument) => {
    try {
      return call(argument);
    } catch (error) {
      console.error(error.stack);
      throw error.message ?? error;
    }
  };
}

// Takes endpoints on nodes under maintenance out of use: kube-proxy gets EndpointSlices without them, or with them marked
// as not ready. A Service keeps all endpoints with the annotation `example.com/drain: ignore`.

#include "filter.h" // generated from the contract in wit

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Set by configure. The outcome of an object may depend only on the settings and on what filter reads.
static filter_string_t node_label, action;
static weir_filter_objects_borrow_path_t service_path, name_path, nodes_path, ready_path;

static bool parse(filter_string_t settings, filter_string_t *err);
static bool filter(weir_filter_objects_borrow_object_t object, exports_weir_filter_module_verdict_t *ret,
                   filter_string_t *err);

// A text of this program, which is not freed.
static filter_string_t text(const char *text) {
  return (filter_string_t){(uint8_t *)text, strlen(text)};
}

static bool equal(filter_string_t a, filter_string_t b) {
  return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static bool path(const char *expression, weir_filter_objects_borrow_path_t *ret, filter_string_t *err) {
  filter_string_t string = text(expression);
  weir_filter_objects_own_path_t own;
  if (!weir_filter_objects_static_path_parse(&string, &own, err)) return false;
  *ret = weir_filter_objects_borrow_path(own); // kept as long as the instance
  return true;
}

void exports_weir_filter_module_describe(exports_weir_filter_module_description_t *ret) {
  filter_string_dup(&ret->name, "drain");
  filter_string_dup(&ret->version, "0.1.0");
  filter_string_dup(&ret->summary, "Takes endpoints on nodes under maintenance out of use");
}

bool exports_weir_filter_module_configure(filter_string_t *settings, exports_weir_filter_module_plan_t *ret,
                                          filter_string_t *err) {
  bool ok = parse(*settings, err);
  filter_string_free(settings);
  if (!ok || !path("metadata.labels['kubernetes.io/service-name']", &service_path, err) ||
      !path("metadata.name", &name_path, err) || !path("endpoints[*].nodeName", &nodes_path, err) ||
      !path("endpoints[*].conditions.ready", &ready_path, err))
    return false;
  // The generated code frees what is returned, so that it must be on the heap.
  ret->matches.len = 1;
  ret->matches.ptr = malloc(sizeof *ret->matches.ptr);
  filter_string_dup(&ret->matches.ptr[0], "kube-proxy/endpointslices#get;list;watch");
  ret->lookups.len = 2;
  ret->lookups.ptr = calloc(2, sizeof *ret->lookups.ptr);
  filter_string_dup(&ret->lookups.ptr[0].resource, "services");
  ret->lookups.ptr[0].metadata_only = true;
  filter_string_dup(&ret->lookups.ptr[1].resource, "nodes");
  ret->lookups.ptr[1].metadata_only = true;
  ret->lookups.ptr[1].label_selector.is_some = true;
  filter_string_dup_n(&ret->lookups.ptr[1].label_selector.val, (char *)node_label.ptr, node_label.len);
  return true;
}

bool exports_weir_filter_module_filter(exports_weir_filter_module_borrow_object_t object,
                                       exports_weir_filter_module_verdict_t *ret, filter_string_t *err) {
  *ret = EXPORTS_WEIR_FILTER_MODULE_VERDICT_KEEP;
  bool ok = filter(object, ret, err);
  weir_filter_objects_object_drop_borrow(object);
  return ok;
}

// The value of a row. Its pointer is NULL if the row is missing or null, which the top bit of its end says.
static filter_string_t row(const weir_filter_objects_column_t *column, size_t i) {
  uint32_t start = i ? column->ends.ptr[i - 1] & 0x7fffffff : 0, end = column->ends.ptr[i];
  if (end >> 31) return (filter_string_t){0};
  return (filter_string_t){column->text.ptr + start, end - start};
}

static void write_log(weir_filter_log_level_t level, const char *format, filter_string_t value) {
  char line[512];
  snprintf(line, sizeof line, format, (int)value.len, (char *)value.ptr);
  filter_string_t message = text(line);
  weir_filter_log_write(level, &message);
}

// Whether the Service that the slice names in its label ignores maintenance.
static bool is_ignored(weir_filter_objects_borrow_object_t object) {
  filter_string_t services = text("services"), key = text("example.com/drain"), policy;
  weir_filter_cluster_own_object_t service;
  if (!weir_filter_cluster_referent(&services, object, service_path, &service)) return false;
  bool ignored = false;
  if (weir_filter_objects_method_object_annotation(weir_filter_objects_borrow_object(service), &key, &policy)) {
    ignored = equal(policy, text("ignore"));
    if (!ignored && policy.len)
      write_log(WEIR_FILTER_LOG_LEVEL_WARN, "annotation example.com/drain of the Service: expected ignore, got %.*s",
                policy);
    filter_string_free(&policy);
  }
  weir_filter_objects_object_drop_own(service);
  return ignored;
}

// Edits the endpoints on these nodes, in one call.
static bool edit(weir_filter_objects_borrow_object_t object, const weir_filter_objects_column_t *drained,
                 exports_weir_filter_module_verdict_t *ret, filter_string_t *err) {
  weir_filter_objects_column_t endpoints;
  weir_filter_objects_method_object_column(object, nodes_path, &endpoints);
  size_t rows = endpoints.ends.len, found = 0;
  // Row i is bit i % 8 of byte i / 8.
  filter_list_u8_t on_drained = {calloc(1, rows / 8 + 1), (rows + 7) / 8}, others = {calloc(1, rows / 8 + 1), (rows + 7) / 8};
  for (size_t i = 0; i < rows; i++) {
    filter_string_t node = row(&endpoints, i);
    bool is_drained = false;
    for (size_t j = 0; node.ptr && j < drained->ends.len && !is_drained; j++) is_drained = equal(node, row(drained, j));
    (is_drained ? on_drained : others).ptr[i / 8] |= 1 << (i % 8);
    found += is_drained;
  }
  bool ok = true;
  if (found) {
    filter_string_t name;
    weir_filter_objects_method_object_name(object, &name);
    write_log(WEIR_FILTER_LOG_LEVEL_DEBUG, "endpoints of %.*s are on nodes under maintenance", name);
    filter_string_free(&name);
    if (equal(action, text("unready"))) {
      weir_filter_objects_value_t no = {.tag = WEIR_FILTER_OBJECTS_VALUE_BOOLEAN, .val = {.boolean = false}};
      ok = weir_filter_objects_method_object_set_rows(object, ready_path, &on_drained, &no, err);
    } else if (found == rows) {
      *ret = EXPORTS_WEIR_FILTER_MODULE_VERDICT_HIDE;
    } else {
      ok = weir_filter_objects_method_object_retain(object, nodes_path, &others, err);
    }
  }
  free(on_drained.ptr);
  free(others.ptr);
  weir_filter_objects_column_free(&endpoints);
  return ok;
}

static bool filter(weir_filter_objects_borrow_object_t object, exports_weir_filter_module_verdict_t *ret,
                   filter_string_t *err) {
  // The reads up to here are all that most objects cost, and the daemon replays them.
  filter_string_t resource = text("nodes"), kind;
  weir_filter_cluster_own_selection_t nodes = weir_filter_cluster_find(&resource, NULL, &node_label);
  weir_filter_cluster_borrow_selection_t selection = weir_filter_cluster_borrow_selection(nodes);
  bool ok = true;
  if (weir_filter_cluster_method_selection_count(selection)) {
    weir_filter_objects_method_object_kind(object, &kind);
    ok = equal(kind, text("EndpointSlice"));
    if (!ok) {
      char reason[256];
      snprintf(reason, sizeof reason, "expected an EndpointSlice, got a %.*s: correct the match rules", (int)kind.len,
               (char *)kind.ptr);
      filter_string_dup(err, reason);
    } else if (!is_ignored(object)) {
      weir_filter_cluster_column_t drained;
      weir_filter_cluster_method_selection_column(selection, name_path, &drained);
      ok = edit(object, &drained, ret, err);
      weir_filter_cluster_column_free(&drained);
    }
    filter_string_free(&kind);
  }
  weir_filter_cluster_selection_drop_own(nodes);
  return ok;
}

// The settings are compact or spaced JSON. This reads one object of strings without escapes, which is enough here.

typedef struct {
  const char *at, *end;
} cursor;

static bool skip(cursor *c, char expected) {
  while (c->at < c->end && isspace((unsigned char)*c->at)) c->at++;
  if (c->at == c->end || *c->at != expected) return false;
  c->at++;
  return true;
}

static bool read(cursor *c, filter_string_t *ret) {
  if (!skip(c, '"')) return false;
  ret->ptr = (uint8_t *)c->at;
  while (c->at < c->end && *c->at != '"' && *c->at != '\\') c->at++;
  ret->len = (size_t)(c->at - (const char *)ret->ptr);
  return skip(c, '"');
}

static bool refuse(filter_string_t *err, filter_string_t key, const char *reason) {
  char message[256];
  snprintf(message, sizeof message, "%.*s: %s", (int)key.len, (const char *)key.ptr, reason);
  filter_string_dup(err, message);
  return false;
}

static bool parse(filter_string_t settings, filter_string_t *err) {
  filter_string_t key, value, label_key = text("nodeLabel"), action_key = text("action");
  cursor c = {(const char *)settings.ptr, (const char *)settings.ptr + settings.len};
  filter_string_dup(&action, "remove");
  if (!skip(&c, '{')) return refuse(err, text("settings"), "not an object");
  if (!skip(&c, '}')) {
    do {
      if (!read(&c, &key) || !skip(&c, ':')) return refuse(err, text("settings"), "not JSON");
      if (!equal(key, label_key) && !equal(key, action_key)) return refuse(err, key, "unknown field");
      if (!read(&c, &value)) return refuse(err, key, "invalid type: expected a string without escapes");
      filter_string_dup_n(equal(key, action_key) ? &action : &node_label, (char *)value.ptr, value.len);
    } while (skip(&c, ','));
    if (!skip(&c, '}')) return refuse(err, text("settings"), "not JSON");
  }
  if (!node_label.ptr) return refuse(err, label_key, "missing field");
  if (!node_label.len || memchr(node_label.ptr, ',', node_label.len)) return refuse(err, label_key, "expected one label");
  if (!equal(action, text("remove")) && !equal(action, text("unready")))
    return refuse(err, action_key, "unknown value: expected remove or unready");
  return true;
}

// Hides the objects whose annotation has the value "true".

#include "filter.h" // generated from the contract in wit

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Set by configure, which the host calls once before it filters objects. Keep no other state between calls: the outcome
// of an object may depend only on the settings and on what filter reads.
static filter_string_t annotation;

static bool parse(filter_string_t settings, filter_string_t *err);

void exports_weir_filter_module_describe(exports_weir_filter_module_description_t *ret) {
  filter_string_dup(&ret->name, "{{name}}");
  filter_string_dup(&ret->version, "0.1.0");
  filter_string_dup(&ret->summary, "Hides objects with an annotation");
}

bool exports_weir_filter_module_configure(filter_string_t *settings, exports_weir_filter_module_plan_t *ret,
                                          filter_string_t *err) {
  bool ok = parse(*settings, err);
  filter_string_free(settings);
  if (!ok) return false;
  // The generated code frees what is returned, so that it must be on the heap.
  ret->matches.len = 1;
  ret->matches.ptr = malloc(sizeof *ret->matches.ptr);
  filter_string_dup(&ret->matches.ptr[0], "kube-proxy/services#get;list;watch");
  ret->lookups = (exports_weir_filter_module_list_lookup_t){0};
  return true;
}

bool exports_weir_filter_module_filter(exports_weir_filter_module_borrow_object_t object,
                                       exports_weir_filter_module_verdict_t *ret, filter_string_t *err) {
  (void)err; // return false with this text for a fault
  *ret = EXPORTS_WEIR_FILTER_MODULE_VERDICT_KEEP;
  filter_string_t value;
  if (weir_filter_objects_method_object_annotation(object, &annotation, &value)) {
    if (value.len == 4 && memcmp(value.ptr, "true", 4) == 0) *ret = EXPORTS_WEIR_FILTER_MODULE_VERDICT_HIDE;
    filter_string_free(&value);
  }
  weir_filter_objects_object_drop_borrow(object);
  return true;
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

static bool text(cursor *c, filter_string_t *ret) {
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
  filter_string_t key, value, whole, name;
  filter_string_set(&whole, "settings");
  filter_string_set(&name, "annotation");
  cursor c = {(const char *)settings.ptr, (const char *)settings.ptr + settings.len};
  if (!skip(&c, '{')) return refuse(err, whole, "not an object");
  if (!skip(&c, '}')) {
    do {
      if (!text(&c, &key) || !skip(&c, ':')) return refuse(err, whole, "not JSON");
      if (key.len != name.len || memcmp(key.ptr, name.ptr, key.len) != 0) return refuse(err, key, "unknown field");
      if (!text(&c, &value)) return refuse(err, key, "not a string without escapes");
      filter_string_dup_n(&annotation, (const char *)value.ptr, value.len);
    } while (skip(&c, ','));
    if (!skip(&c, '}')) return refuse(err, whole, "not JSON");
  }
  return annotation.len > 0 || refuse(err, name, "missing");
}

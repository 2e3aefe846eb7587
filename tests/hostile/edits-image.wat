;; filter sets the image of every container, a protected field. Only a filter that declares it under `edits` may edit it.
(module
  (import "weir:filter/objects@0.1.0" "[static]path.parse" (func $parse (param i32 i32 i32)))
  (import "weir:filter/objects@0.1.0" "[method]object.set" (func $set (param i32 i32 i32 i32 i32 i32)))
  (import "weir:filter/objects@0.1.0" "[resource-drop]object" (func $drop (param i32)))
  (memory (export "memory") 1)
  ;; A bump allocator is sufficient, as a faulty instance lives only briefly.
  (global $free (mut i32) (i32.const 4096))
  (func $realloc (export "cabi_realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
                            (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $new)))
    (local.get $at))
  ;; describe: {name, version, summary}, all empty.
  (func (export "weir:filter/module@0.1.0#describe") (result i32) (i32.const 64))
  ;; configure: ok, plan {matches: ["*/pods"], lookups: []}.
  (data (i32.const 128) "*/pods")
  (func (export "weir:filter/module@0.1.0#configure") (param i32 i32) (result i32)
    (i32.store (i32.const 200) (i32.const 128)) (i32.store (i32.const 204) (i32.const 6))
    (i32.store8 (i32.const 160) (i32.const 0))
    (i32.store (i32.const 164) (i32.const 200)) (i32.store (i32.const 168) (i32.const 1))
    (i32.store (i32.const 172) (i32.const 0)) (i32.store (i32.const 176) (i32.const 0))
    (i32.const 160))
  (data (i32.const 1024) "spec.containers[*].imageevil:latest")
  (func (export "weir:filter/module@0.1.0#filter") (param $object i32) (result i32)
    (call $parse (i32.const 1024) (i32.const 24) (i32.const 400))
    ;; text("evil:latest") is case 3 of value.
    (call $set (local.get $object) (i32.load (i32.const 404)) (i32.const 3) (i32.const 1048) (i32.const 11) (i32.const 420))
    (call $drop (local.get $object))
    ;; filter returns the result of set: ok(keep), or the error.
    (i32.store8 (i32.const 300) (i32.load8_u (i32.const 420)))
    (i32.store (i32.const 304) (select (i32.load (i32.const 424)) (i32.const 0) (i32.load8_u (i32.const 420))))
    (i32.store (i32.const 308) (i32.load (i32.const 428)))
    (i32.const 300))
)

;; filter starts timers until it is refused, and keeps all of them.
(module
  (import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $timer (param i64) (result i32)))
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
  ;; configure: ok, plan {matches: ["*/services"], lookups: []}.
  (data (i32.const 128) "*/services")
  (func (export "weir:filter/module@0.1.0#configure") (param i32 i32) (result i32)
    (i32.store (i32.const 200) (i32.const 128)) (i32.store (i32.const 204) (i32.const 10))
    (i32.store8 (i32.const 160) (i32.const 0))
    (i32.store (i32.const 164) (i32.const 200)) (i32.store (i32.const 168) (i32.const 1))
    (i32.store (i32.const 172) (i32.const 0)) (i32.store (i32.const 176) (i32.const 0))
    (i32.const 160))
  (func (export "weir:filter/module@0.1.0#filter") (param $object i32) (result i32)
    (loop $again (drop (call $timer (i64.const 1))) (br $again))
    (unreachable))
)

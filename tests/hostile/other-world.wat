;; A component of another world, whose exports are not those of a filter.
(component
  (core module $code (func (export "run")))
  (core instance $code (instantiate $code))
  (func $run (canon lift (core func $code "run")))
  (instance $runner (export "run" (func $run)))
  (export "example:other/runner@1.0.0" (instance $runner)))

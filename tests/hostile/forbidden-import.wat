;; Imports HTTP, which filters do not get. The error names the interface and says what to do.
(component
  (import "wasi:http/outgoing-handler@0.2.6" (instance (export "handle" (func)))))

;; Imports the file system, which filters do not get. The error names the interface.
(component
  (import "wasi:filesystem/preopens@0.2.6" (instance (export "touch" (func)))))

;; Built for WASI 0.3. The error names the version that Weir serves.
(component
  (import "wasi:cli/environment@0.3.0" (instance (export "get-environment" (func)))))

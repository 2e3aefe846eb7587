package export_weir_filter_module

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	witRuntime "go.bytecodealliance.org/pkg/wit/runtime"
)

// The collector may not start while the host passes a value to the module, because it reads the clock, and calls out of
// the module trap at that time. So it never starts by itself, and every call of Filter ends with collect.

const heapLimit = 8 << 20

var heap = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}

func init() {
	debug.SetGCPercent(-1)
}

func collect() {
	witRuntime.Unpin() // the generated code keeps every string that the host has returned
	if metrics.Read(heap); heap[0].Value.Uint64() > heapLimit {
		runtime.GC()
	}
}

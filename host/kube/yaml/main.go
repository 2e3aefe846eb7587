// Command yaml writes what sigs.k8s.io/yaml, by which kubectl and Kubernetes read YAML, makes of each line of texts.txt: the
// text, a tab, and the value as JSON, or "error". The test of host/kube/src/yaml.rs replays the result.
//
//	go run . < texts.txt > values.txt
package main

import (
	"bufio"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		text := lines.Text()
		value, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			value = []byte("error")
		}
		fmt.Printf("%s\t%s\n", text, value)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

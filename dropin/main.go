package main

import (
	"fmt"
	"os"
)

func main() {
	dir := "/tmp/dropin-work"
	os.RemoveAll(dir); os.MkdirAll(dir, 0o777)
	out, err := output(goCommand(".", "env", "GOROOT"))
	if err != nil { panic(err) }
	o, err := newOverlay(dir, string(out[:len(out)-1]))
	if err != nil { panic(err) }
	ts, err := trials(dir)
	if err != nil { panic(err) }
	for _, t := range ts {
		if err := o.addTest(t.Dir, t.Name); err != nil { panic(err) }
		fmt.Println(t.ImportPath, t.from)
	}
	fmt.Println(o.write())
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// goCommand is the go command in a directory. cgo is off for all of it: rdmanet has
// C for devices, which the standard library cannot take in.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}

// output runs a command, and returns what it prints.
func output(cmd *exec.Cmd) ([]byte, error) {
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, errs.Bytes())
	}
	return out, nil
}

// A pkg is what go list says of a package.
type pkg struct {
	ImportPath, Dir, Name     string
	Standard                  bool
	GoFiles, SFiles, HFiles   []string
	TestGoFiles, XTestGoFiles []string
}

func list(dir string, args ...string) ([]pkg, error) {
	out, err := output(goCommand(dir, append([]string{"list", "-json=ImportPath,Dir,Name,Standard,GoFiles,SFiles,HFiles,TestGoFiles,XTestGoFiles"}, args...)...))
	if err != nil {
		return nil, err
	}
	return decodeAll[pkg](out)
}

// decodeAll reads JSON values one after the other.
func decodeAll[T any](text []byte) (all []T, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var v T
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

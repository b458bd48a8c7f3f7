package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A suite is packages whose tests are run: of the standard library, or of a module
// that go.mod names.
type suite struct {
	module   string
	packages []string
}

var suites = []suite{
	{"", []string{"net/http/...", "crypto/tls", "net/rpc/...", "net/smtp"}},
	{"golang.org/x/crypto", []string{"./ssh", "./ssh/agent", "./ssh/test"}},
	{"golang.org/x/net", []string{"./http2"}},
	{"google.golang.org/grpc", []string{"./internal/transport", "./test"}},
}

// A trial is one package's tests.
type trial struct {
	pkg
	from string // the directory from where the go command sees the package
}

// trials finds the packages. A module is copied, since -overlay cannot add to the
// module cache. Its tests so run in the module itself, with the versions of what
// they need that it asks for.
func trials(dir string) (all []trial, err error) {
	for _, s := range suites {
		from := "."
		if s.module != "" {
			from = filepath.Join(dir, strings.ReplaceAll(s.module, "/", "+"))
			if err := copyModule(s.module, from); err != nil {
				return nil, fmt.Errorf("copy %s: %w", s.module, err)
			}
		}
		packages, err := list(from, s.packages...)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
				all = append(all, trial{p, from})
			}
		}
	}
	return all, nil
}

func copyModule(path, to string) error {
	out, err := output(goCommand(".", "mod", "download", "-json", path))
	if err != nil {
		return err
	}
	modules, err := decodeAll[struct{ Dir string }](out)
	if err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(modules[0].Dir))
}

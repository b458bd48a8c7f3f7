package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hookPath is the package that tests under trial import. It and what it needs are
// placed in the standard library, whose packages import no others, below root.
// A package with assembly goes to asmPath, of which there is a directory on disk,
// without Go files: the assembler is run in the directory of what it assembles.
const (
	hookPath = "github.com/rdmanet/rdmanet/dropin/hook"
	root     = "dropin/"
	asmPath  = "net/testdata"
)

// An overlay is what the go command reads in place of the files on disk, or beside
// them: the file that -overlay names.
type overlay struct {
	dir     string // for what is generated
	goroot  string
	Replace map[string]string
}

func newOverlay(dir, goroot string) (*overlay, error) {
	o := &overlay{dir, goroot, map[string]string{}}
	if err := o.patchNet(); err != nil {
		return nil, fmt.Errorf("hook into package net: %w", err)
	}
	if err := o.addHook(); err != nil {
		return nil, fmt.Errorf("place rdmanet in the standard library: %w", err)
	}
	return o, nil
}

// add has the go command find text at a path.
func (o *overlay) add(path string, text []byte) error {
	file := filepath.Join(o.dir, fmt.Sprintf("%d%s", len(o.Replace), filepath.Ext(path)))
	o.Replace[path] = file
	return os.WriteFile(file, text, 0o666)
}

// addTest has the tests of a package import the hook. The file is one of an
// external test: these may import what imports the package.
func (o *overlay) addTest(dir, name string) error {
	return o.add(filepath.Join(dir, "zz_dropin_test.go"),
		fmt.Appendf(nil, "package %s_test\n\nimport _ %q\n", name, root+hookPath))
}

// write makes the file for -overlay.
func (o *overlay) write() (string, error) {
	file := filepath.Join(o.dir, "overlay.json")
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o666)
}

// The functions of package net through which a connection or a listener is made,
// and what is inserted at the beginning of each. It stays on the line of the brace,
// so that line numbers remain those of the toolchain.
var hooked = []struct{ receiver, name, params, insert string }{
	{"*Dialer", "DialContext", "ctx context.Context, network, address string",
		" if dropinDial != nil { if c, taken, err := dropinDial(ctx, d, network, address); taken { return c, err } }"},
	{"*ListenConfig", "Listen", "ctx context.Context, network, address string",
		" if dropinListen != nil { if l, taken, err := dropinListen(ctx, lc, network, address); taken { return l, err } }"},
}

// hookVars are the variables that hooked looks at. A go:linkname without a second
// name lets another package have them.
const hookVars = `package net

import (
	"context"
	_ "unsafe"
)

//go:linkname dropinDial
var dropinDial func(ctx context.Context, d *Dialer, network, address string) (Conn, bool, error)

//go:linkname dropinListen
var dropinListen func(ctx context.Context, lc *ListenConfig, network, address string) (Listener, bool, error)
`

// patchNet inserts the hook.
func (o *overlay) patchNet() error {
	path := filepath.Join(o.goroot, "src", "net", "dial.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, 0)
	if err != nil {
		return err
	}
	var edits []edit
	for _, h := range hooked {
		i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != h.name {
				return false
			}
			src := func(from, to token.Pos) string {
				return string(text[fset.Position(from).Offset:fset.Position(to).Offset])
			}
			return src(f.Recv.List[0].Type.Pos(), f.Recv.List[0].Type.End()) == h.receiver &&
				src(f.Type.Params.Opening+1, f.Type.Params.Closing) == h.params
		})
		if i < 0 {
			return fmt.Errorf("%s has no func (%s) %s(%s): this toolchain is not the one that dropin was written for", path, h.receiver, h.name, h.params)
		}
		brace := fset.Position(file.Decls[i].(*ast.FuncDecl).Body.Lbrace).Offset
		edits = append(edits, edit{brace + 1, brace + 1, h.insert})
	}
	if err := o.add(path, edited(text, edits)); err != nil {
		return err
	}
	return o.add(filepath.Join(o.goroot, "src", "net", "dropin.go"), []byte(hookVars))
}

// An edit puts text in the place of the bytes from one offset to another.
type edit struct {
	from, to int
	text     string
}

// edited makes edits, which are in order.
func edited(text []byte, edits []edit) []byte {
	var b bytes.Buffer
	done := 0
	for _, e := range edits {
		b.Write(text[done:e.from])
		b.WriteString(e.text)
		done = e.to
	}
	b.Write(text[done:])
	return b.Bytes()
}

// addHook places the hook, rdmanet and what that needs in the standard library:
// the same files, but for the paths that they import.
func (o *overlay) addHook() error {
	packages, err := list(".", "-deps", hookPath)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, func(p pkg) bool { return p.Standard })
	moved := map[string]string{}
	asm := ""
	for _, p := range packages {
		moved[p.ImportPath] = root + p.ImportPath
		if len(p.SFiles) == 0 {
			continue
		}
		if asm != "" {
			return fmt.Errorf("%s and %s have assembly; there is a place for one such package", asm, p.ImportPath)
		}
		asm, moved[p.ImportPath] = p.ImportPath, asmPath
	}
	for _, p := range packages {
		dir := filepath.Join(o.goroot, "src", filepath.FromSlash(moved[p.ImportPath]))
		for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err == nil && strings.HasSuffix(name, ".go") {
				text, err = movedImports(text, moved)
			}
			if err == nil {
				err = o.add(filepath.Join(dir, name), text)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// movedImports is a Go file that imports what was moved from where it is now.
func movedImports(text []byte, moved map[string]string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var edits []edit
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if to, ok := moved[path]; ok {
			edits = append(edits, edit{fset.Position(spec.Path.Pos()).Offset, fset.Position(spec.Path.End()).Offset, strconv.Quote(to)})
		}
	}
	return edited(text, edits), nil
}

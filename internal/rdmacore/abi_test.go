//go:build linux

package rdmacore

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func compiler(t *testing.T) string {
	t.Helper()
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); err == nil {
			return path
		}
	}
	t.Skip("needs a C compiler")
	return ""
}

func compile(t *testing.T, cc string, args ...string) {
	t.Helper()
	args = append([]string{"-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", "."}, args...)
	out, err := exec.Command(cc, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestABI compares our declarations with the headers of a distribution.
// RDMANET_ABI_HEADERS names the directories to find those in, with colons between
// them; lab/headers fetches them.
func TestABI(t *testing.T) {
	dirs := filepath.SplitList(os.Getenv("RDMANET_ABI_HEADERS"))
	if len(dirs) == 0 {
		t.Skip("needs the RDMA headers of a distribution: RDMANET_ABI_HEADERS is not set (lab/headers bookworm prints a directory for it)")
	}
	cc := compiler(t)
	for _, dir := range dirs {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			require.FileExists(t, filepath.Join(dir, "rdma/rdma_cma.h"))
			compile(t, cc, "-isystem", dir, "testdata/abi_check.c")
		})
	}
}

// TestCIsClean compiles the C of this package with all warnings as errors, which
// an ordinary build does not.
func TestCIsClean(t *testing.T) {
	cc := compiler(t)
	files, err := filepath.Glob("*.c")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(file, func(t *testing.T) { compile(t, cc, "-O2", file) })
	}
}

// TestDataPathInC runs data.c against a driver that answers in all the ways that
// drivers do, and where the compiler can with its sanitizers.
func TestDataPathInC(t *testing.T) { runC(t, "data_check") }

// TestOneThreadInC runs onethread.c against a library that notes on which thread it is called.
func TestOneThreadInC(t *testing.T) { runC(t, "onethread_check") }

// runC runs a program of testdata.
func runC(t *testing.T, name string) {
	t.Helper()
	cc := compiler(t)
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I", ".", "-o", program, "testdata/" + name + ".c", "-pthread"}
	sanitize := append([]string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}, args...)
	if out, err := exec.Command(cc, sanitize...).CombinedOutput(); err != nil {
		t.Logf("without sanitizers: %s", out)
		out, err := exec.Command(cc, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

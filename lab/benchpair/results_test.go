//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbers(t *testing.T) {
	rstream := "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n" +
		"custom    64      1       1k      125k        0.86s      0.01     429.85\n"
	n, err := numbers(rstreamLine, rstream)
	require.NoError(t, err)
	require.Equal(t, []float64{0.01, 429.85}, n)

	n, err = numbers(oursLine, "seconds 0.125000 allocs 21\n")
	require.NoError(t, err)
	require.Equal(t, []float64{0.125, 21}, n)

	n, err = numbers(dialLine, "median 10.5 connect 7.0 close 3.5\n")
	require.NoError(t, err)
	require.Equal(t, []float64{10.5, 7, 3.5}, n)

	_, err = numbers(rstreamLine, "rconnect: Connection refused\n")
	require.Error(t, err)
}

func TestPerftestValue(t *testing.T) {
	lat := " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n" +
		" 4096    1000          44.15          30208.52      56.85    \t       805.03      \t1957.24\t\t8292.56 \t\t30208.52\n"
	v, err := perftestValue(lat, 4096, 5)
	require.NoError(t, err)
	require.Equal(t, 805.03, v)

	bw := " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
		" 65536      500              0.47               0.19   \t\t   0.000381\n"
	v, err = perftestValue(bw, 65536, 3)
	require.NoError(t, err)
	require.Equal(t, 0.19, v)

	_, err = perftestValue(strings.Replace(bw, "0.19", "0.00", 1), 65536, 3)
	require.ErrorContains(t, err, "measured 0")
	_, err = perftestValue("Couldn't connect to 192.0.2.1:7500\n", 64, 5)
	require.ErrorContains(t, err, "no result")
}

func TestRatio(t *testing.T) {
	it := &item{
		contenders: []*contender{
			{name: ours, values: []float64{11, 10, 12}},
			{name: spinning, values: []float64{10, 10, 10}},
		},
		goals: []goal{{ours, spinning, 1.1}},
	}
	line := func() string {
		var b strings.Builder
		it.printRatio(&b, it.find(spinning))
		return b.String()
	}
	require.Equal(t, " rdmanet ≤ 1.10 | 1.10 | 1.10 | yes |\n", line())
	it.bigger = true
	it.goals[0].bound = 1.2
	require.Equal(t, " rdmanet ≥ 1.20 | 1.10 | 1.10 | **no** |\n", line())
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 1.5, median([]float64{2, 1}))
	require.Zero(t, median(nil))
}

func TestProcesses(t *testing.T) {
	sh := func(script string) []string { return argv("sh", "-c", script) }

	out, err := processes(sh("echo served"), sh("echo asked"), false)
	require.NoError(t, err)
	require.Equal(t, outputs{"served\n", "asked\n"}, out)

	out, err = processes(sh("exec sleep 100"), sh("echo asked"), true)
	require.NoError(t, err)
	require.Equal(t, "asked\n", out.client)

	// A client that comes too early is started again.
	marker := t.TempDir() + "/marker"
	out, err = processes(sh("exec sleep 100"), sh("test -e "+marker+" || { touch "+marker+"; exit 1; }; echo again"), true)
	require.NoError(t, err)
	require.Equal(t, "again\n", out.client)

	_, err = processes(sh("exit 3"), sh("true"), false)
	require.ErrorContains(t, err, "exit status 3")
	_, err = processes(sh("echo in vain"), sh("exit 4"), false)
	require.ErrorContains(t, err, "exit status 4")
	require.ErrorContains(t, err, "in vain")
}

func TestOnce(t *testing.T) {
	calls := 0
	c := &contender{key: "µs", run: func() (map[string]float64, error) {
		if calls++; calls == 1 {
			return nil, errors.New("too early")
		}
		return map[string]float64{"µs": float64(calls)}, nil
	}}
	c.once("item")
	require.Equal(t, []float64{2}, c.values)
	require.Equal(t, 1, c.failed)

	c.run = func() (map[string]float64, error) { calls++; return nil, errors.New("gone") }
	for range 5 {
		c.once("item")
	}
	require.Equal(t, maxFailed, c.failed)
	require.Equal(t, 4, calls)
}

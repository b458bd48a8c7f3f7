//go:build linux

// Command benchpair compares connections of this module with those of C, on one
// RDMA device. lab/bench runs it in a guest.
//
//	benchpair run      the whole comparison: prints a table
//	benchpair server   one end of a transfer, as rstream without -s
//	benchpair client   the other end, as rstream -s
//	benchpair accept   accepts connections and reads each to its end
//	benchpair dial     dials and closes, again and again
//
// Server and client speak rstream's pattern, so either may be replaced by it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "benchpair:", err)
		os.Exit(1)
	}
}

// options are those of the ends of a transfer and of dials.
type options struct {
	addr       string
	size       int // bytes of a message
	iterations int // turns of the transfer
	count      int // messages in each direction in a turn
	buffer     int // bytes of either buffer, 0 for the default
	dials      int
	profile    string
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New("say run, server, client, accept or dial")
	}
	if args[0] == "run" {
		return run(args[1:])
	}
	var o options
	f := flag.NewFlagSet(args[0], flag.ExitOnError)
	f.StringVar(&o.addr, "addr", "", "`address` and port to listen on or to dial")
	f.IntVar(&o.size, "size", 64, "`bytes` of a message")
	f.IntVar(&o.iterations, "iterations", 1000, "turns")
	f.IntVar(&o.count, "count", 1, "messages each way in a turn")
	f.IntVar(&o.buffer, "buffer", 0, "`bytes` of the read and of the write buffer, 0 for the default")
	f.IntVar(&o.dials, "n", 100, "dials")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to `file`")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	what, ok := map[string]func(options) error{"server": server, "client": client, "accept": accept, "dial": dial}[args[0]]
	if !ok {
		return fmt.Errorf("there is no command %q", args[0])
	}
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return what(o)
}

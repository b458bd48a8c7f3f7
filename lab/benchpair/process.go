//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	processTimeout = 30 * time.Second // of a measurement
	listenTime     = 150 * time.Millisecond
	attempts       = 20 // of a client, while its server does not listen yet
)

// outputs are what the two processes of a measurement have printed.
type outputs struct{ server, client string }

func argv(program, first string, rest ...string) []string {
	return append([]string{program, first}, rest...)
}

// processes runs a server and then a client, until both have ended. A server
// that is endless is ended when the client has. None of the programs says when it
// listens; a client that finds nobody is started again.
func processes(server, client []string, endless bool) (outputs, error) {
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	var serverOut bytes.Buffer
	s := exec.CommandContext(ctx, server[0], server[1:]...)
	s.Stdout, s.Stderr = &serverOut, &serverOut
	if err := s.Start(); err != nil {
		return outputs{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()

	var out []byte
	var err error
	for range attempts {
		time.Sleep(listenTime)
		c := exec.CommandContext(ctx, client[0], client[1:]...)
		if out, err = c.CombinedOutput(); err == nil || ctx.Err() != nil || len(ended) > 0 {
			break
		}
	}
	if err != nil {
		cancel()
		<-ended
		return outputs{}, fmt.Errorf("%s: %w\n%s\n%s: %s", strings.Join(client, " "), err, out, server[0], serverOut.Bytes())
	}
	if endless {
		cancel()
	}
	if err := <-ended; err != nil && !endless {
		return outputs{}, fmt.Errorf("%s: %w\n%s", strings.Join(server, " "), err, serverOut.Bytes())
	}
	return outputs{serverOut.String(), string(out)}, nil
}

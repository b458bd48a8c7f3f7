//go:build modules

// This file has go.mod name the modules whose tests are run. It is never built.
package main

import (
	_ "golang.org/x/crypto/ssh"
	_ "golang.org/x/net/http2"
	_ "google.golang.org/grpc"
)

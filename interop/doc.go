// Package interop holds tests and nothing else: it proves package rdmanet
// against what the project did not write. The peers are rstream and netcat under
// librspreload.so, which speak rsockets in C, net/http and crypto/tls, which know
// of connections only what package net promises, and processes and hosts that
// die, stop or vanish.
//
// The tests run on Linux on an RDMA device that the environment names:
//
//	RDMANET_TEST_DEVICE  its name, such as rxe0
//	RDMANET_TEST_ADDR4   an IPv4 address of the device
//	RDMANET_TEST_ADDR6   an IPv6 address of the device
//
// Without them they skip. RDMANET_LAB=1 says that this machine is there for the
// tests alone: a C program that is missing is then a failure and not a reason to
// skip, and the tests of hosts that vanish or have no device, which change the
// machine's interfaces and routing, run too. RDMANET_INTEROP_FULL=1 asks for the long sizes: 256 MiB each way, a peer
// that is stopped for a minute, rstream's own default runs. With -short all sizes
// and counts are small.
package interop

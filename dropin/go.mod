module github.com/rdmanet/rdmanet/dropin

go 1.26.0

replace github.com/rdmanet/rdmanet => ..

require (
	github.com/rdmanet/rdmanet v0.0.0-00010101000000-000000000000
	golang.org/x/crypto v0.59.0
	golang.org/x/net v0.63.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

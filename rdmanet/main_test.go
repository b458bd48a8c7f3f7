package rdmanet

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// behindClose is how long what Close leaves behind its caller may take at the most.
const behindClose = partingTimeout + lingerTimeout + 5*time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(patient{m})
}

// patient are tests that wait, when they are over, for what the last Close has left
// behind.
type patient struct{ m *testing.M }

func (p patient) Run() int {
	code := p.m.Run()
	for end := time.Now().Add(behindClose); time.Now().Before(end) && goleak.Find() != nil; {
	}
	return code
}

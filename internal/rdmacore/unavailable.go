//go:build !linux || !cgo

package rdmacore

import (
	"errors"
	"runtime"

	"github.com/rdmanet/rdmanet/internal/cm"
	"github.com/rdmanet/rdmanet/internal/verbs"
)

func unavailable() error {
	if runtime.GOOS != "linux" {
		return &UnavailableError{
			Reason: "librdmacm is a library of Linux, and this is " + runtime.GOOS,
			Err:    errors.ErrUnsupported,
		}
	}
	return &UnavailableError{
		Reason: "this program was built without cgo",
		Advice: "build it with CGO_ENABLED=1 and a C compiler",
		Err:    errors.ErrUnsupported,
	}
}

// Open fails here, and says why: an *UnavailableError.
func Open() (cm.Provider, error) { return nil, unavailable() }

// Devices fails here, and says why: an *UnavailableError.
func Devices() ([]verbs.DeviceInfo, error) { return nil, unavailable() }

//go:build !linux || !cgo

package rdmacore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenSaysWhyNot(t *testing.T) {
	_, err := Open()
	var u *UnavailableError
	require.ErrorAs(t, err, &u)
	require.NotEmpty(t, u.Reason)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = Devices()
	require.ErrorAs(t, err, &u)
}

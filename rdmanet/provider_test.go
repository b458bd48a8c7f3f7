package rdmanet

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProviderText(t *testing.T) {
	for _, p := range []Provider{Auto, Verbs, Software} {
		var got Provider
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.TextVar(&got, "provider", Auto, "")
		require.NoError(t, fs.Parse([]string{"-provider", p.String()}))
		require.Equal(t, p, got)
	}
	var p Provider
	require.Error(t, p.UnmarshalText([]byte("carrier pigeon")))
	require.Equal(t, "provider 9", Provider(9).String())
}

// Package scripted is a provider for tests: what each call of each identifier
// does is written down by the test, as a list of steps, and what was called is
// written down by the provider. Calls that the script does not mention succeed
// at once.
//
// It keeps watch over the rules of internal/cm and internal/verbs: an
// identifier is used by one goroutine at a time, not at all after Destroy, and
// for nothing but Destroy after Interrupt; it is destroyed once, after its
// queue pair; Release comes once, and only for what was not handed over. Verify
// says what was broken and what has been left behind.
//
// It uses package time only through timers, so that a test under
// testing/synctest needs no time at all.
package scripted

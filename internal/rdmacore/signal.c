//go:build linux && cgo

/*
 * The signal that ends a blocked call. It is directed at one thread, its handler
 * does nothing, and it is installed without SA_RESTART: so a system call that
 * waits returns EINTR, which is all that is wanted of it. (Go's runtime handles
 * every signal with SA_RESTART, so none of its signals does that.)
 *
 * Its number is SIGRTMAX-5: the first ones of the real-time signals belong to
 * the C library (32 to 34) and to garbage collectors and managers of processes,
 * which count up from SIGRTMIN; the very last to emulators and checkers.
 */

#include "shim.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void handler(int number)
{
	(void)number;
}

int rn_signal(void)
{
	return SIGRTMAX - 5;
}

int rn_install_handler(void)
{
	struct sigaction action;

	/* A program that asks os/signal for all signals, or another library,
	 * may have replaced the handler since the last time. */
	if (!sigaction(rn_signal(), NULL, &action) && action.sa_handler == handler &&
	    !(action.sa_flags & (SA_SIGINFO | SA_RESTART)))
		return 0;
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	action.sa_flags = SA_ONSTACK; /* Go's threads may have small stacks */
	sigemptyset(&action.sa_mask);
	return sigaction(rn_signal(), &action, NULL) ? errno : 0;
}

int rn_unblock_signal(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, rn_signal());
	return pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int rn_hold_signals(sigset_t *before)
{
	/* those by which a thread is told of its own faults cannot wait */
	static const int at_once[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t set;
	size_t i;

	sigfillset(&set);
	sigdelset(&set, rn_signal());
	for (i = 0; i < sizeof at_once / sizeof *at_once; i++)
		sigdelset(&set, at_once[i]);
	return pthread_sigmask(SIG_BLOCK, &set, before);
}

void rn_release_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}
